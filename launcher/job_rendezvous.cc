#include "launcher/job_rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launcher/base/system/new_file.h"
#include "launcher/base/text.h"
#include "launcher/etcd/etcd_authority.h"
#include "launcher/job_token.h"
#include "launcher/process/input_file.h"

namespace ddp::launch {
LocalRendezvous local_rendezvous(const LaunchConfig& config, const JobPlan& plan) {
  return LocalRendezvous(config.master_addr, config.master_port, !config.rank0_store,
                         plan.restarts);
}

namespace {

std::unique_ptr<Authority> etcd_authority(EtcdSettings etcd, const GroupSettings& settings,
                                          const SignalMailbox& signals) {
  constexpr std::size_t kLongest = 4096;
  if (!etcd.password_file.empty()) {
    etcd.password = trimmed(read_input_file(
        {"--rdzv-conf=password_file=", "must be a readable file with the password of etcd's user"},
        etcd.password_file, kLongest, signals));
  }
  return std::make_unique<EtcdAuthority>(etcd, settings);
}

// Outlives the run's own folder, which is another one when the node is started again.
std::string members_file(const LaunchConfig& config, const GroupSettings& settings) {
  if (config.etcd) return "";
  if (settings.rules.fixed_ranks || config.log_dir.empty() || config.log_dir == "/dev/null")
    return "";
  return fmt::format("{}/{}.{}.members", config.log_dir, safe_file_name(settings.rules.run_id),
                     safe_file_name(settings.host_name));
}

}  // namespace

JobRendezvous make_rendezvous(const LaunchConfig& config, const JobPlan& plan,
                              const SignalMailbox& signals) {
  JobRendezvous rendezvous;
  if (!config.group) {
    rendezvous.local = std::make_unique<LocalRendezvous>(local_rendezvous(config, plan));
    return rendezvous;
  }
  GroupSettings settings = *config.group;
  settings.host_name = plan.host;
  settings.rules.restarts = plan.restarts;
  settings.local_world_size = plan.job.local_world_size;
  settings.rank0_store = config.rank0_store;
  settings.members_file = members_file(config, settings);
  const JobToken token = job_token(config, signals);
  settings.token = token.secret;
  settings.token_remedy = token.remedy;
  std::unique_ptr<Authority> authority;
  if (config.etcd) authority = etcd_authority(*config.etcd, settings, signals);
  rendezvous.group = std::make_unique<GroupRendezvous>(std::move(settings), std::move(authority));
  return rendezvous;
}

RendezvousInfo supposed_round(const GroupSettings& group, int local_world_size) {
  RendezvousInfo round;
  round.group_rank = std::max(group.node_rank, 0);
  round.group_world_size = group.rules.max_nodes;
  round.first_rank = round.first_role_rank = round.group_rank * local_world_size;
  round.world_size = round.role_world_size = round.group_world_size * local_world_size;
  round.master_addr = group.host;
  round.master_port = group.port;
  round.agent_store = !group.rank0_store;
  return round;
}

}  // namespace ddp::launch
