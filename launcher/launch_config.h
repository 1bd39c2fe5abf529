// The command line as a plain struct. Looks at nothing but argv: no machine, no files, no
// environment.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/stream_plan.h"

namespace ddp::launch {

enum class LaunchAction { Run, ShowHelp, ShowVersion };

struct LaunchConfig {
  LaunchAction action = LaunchAction::Run;

  std::string nproc_per_node = "1";  // number, gpu, cpu or auto: resolved by local_world_size
  bool standalone = false;
  std::string role = "default";
  bool virtual_local_rank = false;

  int max_restarts = 0;
  std::chrono::milliseconds shutdown_timeout{30'000};
  std::vector<int> stop_signals;  // passed on to the workers, then the job ends

  std::string program;
  std::vector<std::string> program_args;
  bool module = false;
  bool no_python = false;

  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0: a free port for each round
  std::string rdzv_id;  // empty: a random one

  std::string log_dir;  // empty: a private folder, removed at the end unless there are logs in it
  LogOptions logs;
};

/// Throws LaunchError (exit code 2) with one line that names the option, the value and the remedy.
LaunchConfig parse_launch_args(int argc, const char* const* argv);

}  // namespace ddp::launch
