#include "launcher/plan/worker_env.h"

#include <fmt/format.h>

#include <cctype>
#include <string_view>

#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

std::string shell_quoted(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted(1, '\'');
  for (const char c : text) {
    if (c == '\'') {
      quoted.append("'\\''");
    } else {
      quoted.push_back(c);
    }
  }
  quoted.push_back('\'');
  return quoted;
}

// An inherited value belongs to an enclosing job.
void set_or_unset(Environment& env, const char* name, const std::string& value) {
  if (value.empty()) {
    env.erase(name);
  } else {
    env[name] = value;
  }
}

// The length of ${local_rank} or $local_rank at the start of the text; 0: neither is there.
std::size_t macro_length(std::string_view text) {
  constexpr std::string_view kBraced = "${local_rank}";
  constexpr std::string_view kNamed = "$local_rank";
  if (text.substr(0, kBraced.size()) == kBraced) return kBraced.size();
  if (text.substr(0, kNamed.size()) != kNamed) return 0;
  const char next = text.size() > kNamed.size() ? text[kNamed.size()] : ' ';
  const bool longer = std::isalnum(static_cast<unsigned char>(next)) != 0 || next == '_';
  return longer ? 0 : kNamed.size();
}

// Like Python's string.Template, except that a $$ that escapes no macro stays: it is the shell's
// process id.
std::string with_local_rank(std::string_view text, int local_rank) {
  std::string out;
  while (!text.empty()) {
    const std::size_t macro = macro_length(text);
    const std::size_t escaped = text[0] == '$' ? macro_length(text.substr(1)) : 0;
    if (macro > 0) {
      out += std::to_string(local_rank);
    } else {
      out += escaped > 0 ? text.substr(1, escaped) : text.substr(0, 1);
    }
    text.remove_prefix(macro > 0 ? macro : 1 + escaped);
  }
  return out;
}

}  // namespace

Environment worker_environment(const Environment& inherited, const JobInfo& job,
                               const WorkerGroup& group, const Worker& worker) {
  Environment env = inherited;
  const RendezvousInfo& rendezvous = group.rendezvous;
  const auto or_own = [&](int size) {
    return std::to_string(size > 0 ? size : job.local_world_size);
  };
  env[kRank] = std::to_string(worker.rank);
  env[kLocalRank] = std::to_string(job.virtual_local_rank ? 0 : worker.local_rank);
  env[kWorldSize] = or_own(rendezvous.world_size);
  env[kLocalWorldSize] = std::to_string(job.local_world_size);
  env[kGroupRank] = std::to_string(rendezvous.group_rank);
  env[kGroupWorldSize] = std::to_string(rendezvous.group_world_size);
  env[kRoleName] = job.role;
  env[kRoleRank] = std::to_string(rendezvous.first_role_rank + worker.local_rank);
  env[kRoleWorldSize] = or_own(rendezvous.role_world_size);
  env[kMasterAddr] = rendezvous.master_addr;
  env[kMasterPort] = std::to_string(rendezvous.master_port);
  env[kRestartCount] = std::to_string(group.restart_count);
  env[kRoundEpoch] = std::to_string(rendezvous.epoch);
  set_or_unset(env, kRoundJob, rendezvous.job);
  env[kMaxRestarts] = std::to_string(job.max_restarts);
  env[kRunId] = job.run_id;
  env[kUseAgentStore] = rendezvous.agent_store ? "True" : "False";
  env[kErrorFile] = worker.error_file.path;
  env[kSignalsToHandle] = job.signals_to_handle;
  set_or_unset(env, kWorkerPerGpu, job.worker_per_gpu ? "1" : "");
  set_or_unset(env, kHeartbeatFile, worker.heartbeat_file);
  set_or_unset(env, kShmDir, job.shm_dir);
  set_or_unset(env, kLastFailure, group.last_failure);
  env.erase(kSpareFd);  // of an enclosing job
  if (!job.timer_file.empty()) env[kTimerFile] = job.timer_file;
  env.try_emplace(kNcclAsyncErrorHandling, "1");
  if (job.omp_num_threads > 0) env[kOmpNumThreads] = std::to_string(job.omp_num_threads);
  if (!job.gpus.empty()) {
    const std::string& gpu = job.gpus.at(static_cast<std::size_t>(worker.local_rank));
    env[kCudaVisibleDevices] = gpu;
    if (job.amd) env[kHipVisibleDevices] = gpu;
  }
  return env;
}

Environment standby_environment(Environment of_worker) {
  for (const char* name : {kRank, kWorldSize, kGroupRank, kGroupWorldSize, kRoleRank,
                           kRoleWorldSize, kMasterAddr, kMasterPort, kRestartCount, kRoundEpoch,
                           kRoundJob, kUseAgentStore, kErrorFile, kHeartbeatFile, kLastFailure}) {
    of_worker.erase(name);
  }
  return of_worker;
}

Command worker_command(const Command& command, int local_rank) {
  Command result = command;
  for (auto& arg : result.argv) arg = with_local_rank(arg, local_rank);
  return result;
}

std::string shell_line(const Environment& inherited, const WorkerSpec& worker) {
  std::string line = "env";
  const auto add = [&line](const std::string& word) {
    line.push_back(' ');
    line.append(shell_quoted(word));
  };
  for (const auto& [name, value] : inherited) {
    if (worker.environment.count(name) > 0) continue;
    add("-u");
    add(name);
  }
  for (const auto& [name, value] : worker.environment) {
    const auto before = inherited.find(name);
    if (before == inherited.end() || before->second != value) add(name + "=" + value);
  }
  if (!worker.cpus.empty()) {
    add("taskset");
    add("--cpu-list");
    add(fmt::format("{}", fmt::join(worker.cpus, ",")));
  }
  add(worker.command.executable);
  for (std::size_t i = 1; i < worker.command.argv.size(); ++i) add(worker.command.argv[i]);
  line.push_back('\n');
  return line;
}

}  // namespace ddp::launch
