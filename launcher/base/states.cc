#include "launcher/base/states.h"

#include <array>
#include <cstddef>

namespace ddp::launch {
namespace {

// In the order of the enumerations.
constexpr std::array kPhases{"checking this node",
                             "joining",
                             "running",
                             "leaving",
                             "dumping stacks",
                             "stopping",
                             "killing",
                             "waiting for leftover processes to end",
                             "waiting for the other nodes",
                             "waiting to restart"};
static_assert(kPhases.size() == static_cast<std::size_t>(Phase::kDelaying) + 1);
constexpr std::array kWorkerStates{"running", "succeeded", "failed", "stopped"};
constexpr std::array kWorkerEvents{"TERMINATED", "SUCCEEDED", "FAILED", "TERMINATED"};
static_assert(kWorkerStates.size() == static_cast<std::size_t>(WorkerState::kStopped) + 1);
constexpr std::array kOutcomes{"succeeded", "failed", "preempted", "interrupted",
                               "guardian killed"};
constexpr std::array kJobEvents{"SUCCEEDED", "FAILED", "PREEMPTED", "INTERRUPTED", "INTERRUPTED"};
static_assert(kOutcomes.size() == static_cast<std::size_t>(Outcome::kGuardianGone) + 1);

}  // namespace

const char* name_of(Phase phase) { return kPhases.at(static_cast<std::size_t>(phase)); }
const char* name_of(WorkerState state) { return kWorkerStates.at(static_cast<std::size_t>(state)); }
const char* name_of(Outcome outcome) { return kOutcomes.at(static_cast<std::size_t>(outcome)); }

const char* event_name(WorkerState ended) {
  return kWorkerEvents.at(static_cast<std::size_t>(ended));
}
const char* event_name(Outcome outcome) { return kJobEvents.at(static_cast<std::size_t>(outcome)); }

}  // namespace ddp::launch
