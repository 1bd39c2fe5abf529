// Kills this process's descendants. Signals direct children only: as a subreaper this process
// inherits their orphans, so repetition reaches every descendant and nothing else.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/base/clock.h"

namespace ddp::launch {

/// Enough for processes that react to SIGKILL at all, after a longer wait for others.
inline constexpr std::chrono::milliseconds kShortPatience{500};

/// Makes orphaned descendants children of this process instead of init.
void become_subreaper();

/// Returns whether this process has children, zombies included.
bool has_children();

/// Returns the children of a process, as far as /proc lists them.
std::vector<pid_t> children_of(pid_t parent);
/// Returns the children of this process, zombies included, that are not in `except`.
std::vector<pid_t> children_except(const std::vector<pid_t>& except);
/// Returns whether this process has children, zombies included, in a process group.
bool has_children_in_group(pid_t group);

/// SIGKILLs and reaps children until none is left except those in `except`. SIGCHLD must be
/// blocked. Returns those still alive after `patience` (uninterruptible sleep): "pid 12 (state D)".
std::vector<std::string> kill_descendants(Clock::duration patience,
                                          const std::vector<pid_t>& except = {});

/// SIGKILLs the children of a process that cannot do so itself, and orphans that it inherits.
void kill_children_of(pid_t parent, Clock::duration patience);

}  // namespace ddp::launch
