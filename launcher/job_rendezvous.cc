#include "launcher/job_rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "launcher/base/command.h"
#include "launcher/base/errors.h"
#include "launcher/base/system/new_file.h"
#include "launcher/base/text.h"
#include "launcher/cli/launch_config.h"
#include "launcher/cluster/user_token.h"
#include "launcher/etcd/etcd_authority.h"
#include "launcher/process/input_file.h"
#include "launcher/process/signal_mailbox.h"

namespace ddp::launch {
namespace {

// The secret by which the nodes of a job authenticate each other.
struct JobToken {
  std::string secret{};  // empty: none
  std::string remedy{};  // without a secret: what the user can do
};

constexpr std::size_t kShortest = 16, kLongest = 4096;

// Without its last line's end.
std::string read_token(const std::string& file, const SignalMailbox& signals) {
  const std::string remedy = fmt::format(
      "must be a readable file of 16 to 4096 bytes; make one with: (umask 077; openssl rand -hex "
      "32 > {})",
      file);
  const std::string token = trimmed(read_input_file({"--rdzv-token-file=", remedy, /*secret=*/true},
                                                    file, kLongest + 1, signals));
  if (token.size() < kShortest || token.size() > kLongest)
    usage_error(fmt::format("--rdzv-token-file={}: {}", file, remedy));
  return token;
}

std::string user_token(const std::string& file, const SignalMailbox& signals) {
  if (file.empty()) usage_error("--rdzv-token-file=auto: HOME is not set; name a file");
  make_user_token(file);
  return read_token(file, signals);
}

// By --rdzv-token-file: a file; "-", the first line of standard input; or "auto", a file in the
// user's home folder. Without the option a job that a scheduler started uses "auto" if the nodes
// share that folder.
JobToken job_token(const LaunchConfig& config, const SignalMailbox& signals) {
  const std::string& option = config.rdzv_token_file;
  const std::string own = user_token_file(inherited_environment());
  if (option == "-") return {read_token_line(kLongest, signals)};
  if (option == "auto") return {user_token(own, signals)};
  if (!option.empty()) return {read_token(option, signals)};
  if (!config.scheduled)
    return {"",
            "give all nodes --rdzv-token-file=FILE with the same secret (openssl rand -hex 32)"};
  if (!own.empty() && is_on_shared_file_system(own)) return {user_token(own, signals)};
  return {"",
          fmt::format("{} is not on a file system known to be shared: if the nodes do share it, "
                      "add --rdzv-token-file=auto, else give all of them the same file",
                      own.empty() ? "the home folder" : own)};
}

std::unique_ptr<Authority> etcd_authority(EtcdSettings etcd, const GroupSettings& settings,
                                          const SignalMailbox& signals) {
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

LocalRendezvous local_rendezvous(const LaunchConfig& config, const JobPlan& plan) {
  return LocalRendezvous(config.master_addr, config.master_port, !config.rank0_store,
                         plan.restarts);
}

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
