// The epochs that distinguish later rounds of a job from earlier ones: agreed on by its hosts, or
// granted by an authority. Pure.
#pragma once

#include <span>
#include <string>

namespace ddp::launch {

/// Returns the first epoch of a host that follows the round `epoch`; -1: there was none. No two
/// hosts propose the same epoch: a later host's are greater, and two hosts that follow the same one
/// have separate ranges.
long long tenure_after(long long epoch, const std::string& host_id);

/// Whether a node that was asked to accept the round `epoch` may have accepted `last` before: not
/// if that is from another host that followed the same one, whose round may have begun instead.
bool may_precede(long long last, long long epoch);

/// Whether enough hosts can have followed each other between the two epochs. An epoch further ahead
/// is forged, and would leave no epochs after it.
bool can_follow(long long epoch, long long known);

/// Returns the next epoch that an authority grants: greater than `known`, its last one, and than
/// those of the nodes' last rounds, as it may have lost its data. Ignores epochs that no job can
/// have reached since `known`.
long long granted_after(long long known, std::span<const long long> accepted);

}  // namespace ddp::launch
