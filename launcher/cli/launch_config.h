// The command line as a plain struct. Depends on its arguments only, not on the machine or files.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/command.h"
#include "launcher/base/restart_rules.h"
#include "launcher/base/system/sockets.h"
#include "launcher/cluster/hosts_request.h"
#include "launcher/etcd/etcd_settings.h"
#include "launcher/hang/hang_rules.h"
#include "launcher/logs/stream_plan.h"
#include "launcher/rendezvous/group_settings.h"

namespace ddp::launch {

/// --numa-binding: the CPUs of each worker.
enum class NumaBinding {
  kNode,         // all CPUs of the GPU's NUMA node
  kSocket,       // all CPUs of the node's socket
  kExclusive,    // the node's cores, split among its workers
  kCoreComplex,  // cores that share a last-level cache, one group per worker of the node
};

enum class LaunchAction { kRun, kDryRun, kPrint, kExplain, kInspect };

struct LaunchConfig {
  LaunchAction action = LaunchAction::kRun;
  std::string printed;  // Print: the requested text, e.g. help
  std::string
      explained;         // Explain: the folder of a run, or its result file; Inspect: a running job
  std::string question;  // Inspect: "status" or "stacks"

  std::string nproc_per_node = "1";  // number, gpu, cpu or auto: resolved by local_world_size
  bool standalone = false;
  std::string role = "default";
  bool virtual_local_rank = false;
  bool one_device_per_rank = false;
  std::optional<NumaBinding> numa_binding;

  RestartRules restarts;
  bool standby_workers = false;  // the next round's workers are started early
  HangRules hangs;
  std::string preflight;  // "auto", or a program with arguments; empty: none
  std::chrono::milliseconds shutdown_timeout{30'000};
  std::chrono::milliseconds exit_grace{};  // 0: none
  int stdin_rank = 0;
  std::vector<int> stop_signals;  // forwarded to the workers, then the job ends

  std::string program;
  std::vector<std::string> program_args;
  bool run_path = false;  // run with Python, whatever its name
  bool module = false;
  bool no_python = false;

  std::string master_addr = "127.0.0.1";
  int master_port = 0;       // 0: a free port for each round
  bool rank0_store = false;  // rank 0 hosts the workers' store, not ddp-run
  std::string rdzv_id;       // empty: a random one
  /// Several nodes: the options about them. nullopt: a single node.
  std::optional<GroupSettings> group;
  std::string rdzv_token_file;       // empty: none; see job_rendezvous.cc
  bool scheduled = false;            // --scheduler
  std::optional<EtcdSettings> etcd;  // for a group: etcd decides who hosts the rendezvous
  /// The job is started on other hosts. nullopt: here.
  std::optional<HostsRequest> hosts;
  std::string lifeline;  // the version of the ddp-run at the other end of stdin; empty: none

  std::string
      log_dir;  // empty: a private folder, removed at the end unless it holds logs worth keeping
  LogOptions logs;
  bool summary = false;
  std::string result_json;  // a file; empty: none
  std::string event_log;    // a file; empty: none
  bool events_on_console = false;
  std::optional<Endpoint> health;

  std::vector<std::string> hints;  // one line each, printed before the job starts
};

/// Throws LaunchError (exit code 2) with one line: the option, the value and the fix.
/// Options not on the command line are read from PET_<NAME> in `environment`, as torchrun does.
LaunchConfig parse_launch_args(int argc, const char* const* argv, const Environment& environment);

}  // namespace ddp::launch
