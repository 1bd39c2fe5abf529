// The children of this process, and the end of them. Touches direct children only: as a child
// subreaper this process inherits whatever they leave, so that repeating it reaches every
// descendant and never anything else.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/base/clock.h"

namespace ddp::launch {

/// For those that die of SIGKILL at all, when others have been waited for already.
inline constexpr std::chrono::milliseconds kShortPatience{500};

/// Orphaned descendants become children of this process instead of init's.
void become_subreaper();

/// Ended ones that nobody has waited for included.
bool has_children();

/// SIGKILLs and reaps children until none is left, those in `spare` excepted. SIGCHLD must be
/// blocked. Whoever is still there after `patience` (in uninterruptible sleep) is named in the
/// result: "pid 12 (state D)".
std::vector<std::string> kill_descendants(Clock::duration patience,
                                          const std::vector<pid_t>& spare = {});

/// SIGKILLs the children of a process that cannot do it itself, and those that it inherits from
/// them.
void kill_children_of(pid_t parent, Clock::duration patience);

}  // namespace ddp::launch
