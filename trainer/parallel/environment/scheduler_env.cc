#include "trainer/parallel/environment/scheduler_env.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "launcher/worker_contract.h"

namespace ddp::train {
namespace {

using namespace ddp::launch;

constexpr const char* kUsualPort = "29500";

struct SchedulerNames {
  const char* sign;  // set for processes of this scheduler only
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;  // nullptr: see tasks_on_node
};
// MPICH, Intel MPI and MVAPICH share Hydra's names.
constexpr SchedulerNames kSchedulers[] = {
    {"SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

std::string value_of(const Variables& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

int number_at(std::string_view text) {
  int number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// "4(x2),3" for node 2 -> "3".
std::string tasks_on_node(std::string_view list, int node) {
  while (!list.empty() && node >= 0) {
    const auto end = std::min(list.find(','), list.size());
    const std::string_view entry = list.substr(0, end);
    const auto times = entry.find("(x");
    node -= times == std::string_view::npos ? 1 : std::max(number_at(entry.substr(times + 2)), 1);
    if (node < 0) return std::string(entry.substr(0, times));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return "";
}

std::string local_size(const Variables& environment, const SchedulerNames& names) {
  if (names.local_size) return value_of(environment, names.local_size);
  return tasks_on_node(value_of(environment, "SLURM_STEP_TASKS_PER_NODE"),
                       number_at(value_of(environment, "SLURM_NODEID")));
}

// As ddp-run --scheduler=slurm chooses it: jobs that share a node shall not meet.
std::string port_of(const Variables& environment) {
  const int job = number_at(value_of(environment, "SLURM_JOB_ID"));
  const int step = number_at(value_of(environment, "SLURM_STEP_ID"));
  if (job < 0 || step < 0) return kUsualPort;
  return std::to_string(20000 + job % 1000 * 8 + step % 8);
}

}  // namespace

Variables launcher_variables(const Variables& environment) {
  if (environment.count(kRank) + environment.count(kWorldSize) > 0) return {};
  if (value_of(environment, kMasterAddr).empty()) return {};
  for (const SchedulerNames& names : kSchedulers) {
    if (value_of(environment, names.sign).empty()) continue;
    if (number_at(value_of(environment, names.size)) <= 1) continue;
    Variables found{{kRank, value_of(environment, names.rank)},
                    {kWorldSize, value_of(environment, names.size)},
                    {kLocalRank, value_of(environment, names.local_rank)},
                    {kLocalWorldSize, local_size(environment, names)},
                    {kMasterPort, port_of(environment)}};
    std::erase_if(found, [](const auto& variable) { return variable.second.empty(); });
    return found;
  }
  return {};
}

Variables whole_environment() {
  Variables environment;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string_view::npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

}  // namespace ddp::train
