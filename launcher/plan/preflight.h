// --preflight: the check of a node before its workers are started.
#pragma once

#include <optional>
#include <string>

#include "launcher/base/command.h"
#include "launcher/plan/program.h"

namespace ddp::launch {

struct Preflight {
  std::string shown;  // for messages
  Command command{};
  Environment environment{};
};

/// The node's part in a job.
struct PreflightJob {
  std::string run_id;
  int local_world_size = 1;
  int gpus = 0;  // that this node's workers share
};

/// Resolves the option: a program with arguments, separated by blanks, or `auto`: `trainer doctor
/// --quick` in as many ranks as the node has workers, if trainer is next to ddp-run or on PATH.
/// Returns nullopt if there is no trainer. Throws LaunchError (127) if the program is not found.
std::optional<Preflight> plan_preflight(const std::string& option, const PreflightJob& job,
                                        const ProgramPlaces& places, const Environment& inherited);

}  // namespace ddp::launch
