// The epochs that distinguish later rounds of a job from earlier ones: agreed on by its hosts, or
// granted by an authority. Pure.
#pragma once

#include <span>
#include <string>

namespace ddp::launch {

/// The first epoch of a host that follows a round with this one; -1: there was none. No two hosts
/// propose the same epoch: a later host's are greater, and of two that follow the same host each
/// has a range of its own.
long long tenure_after(long long epoch, const std::string& host_id);

/// Whether a node that was to accept the round `epoch` may have accepted this one last: not that of
/// another host that has followed the same one, whose round may have begun instead.
bool may_precede(long long last, long long epoch);

/// Whether so many hosts can have followed each other between two epochs. One that is further ahead
/// is made up, and after it no epochs would be left.
bool can_follow(long long epoch, long long known);

/// The next epoch that an authority grants: greater than `known`, its last one, and than those of
/// the nodes' last rounds, as it may have lost its data. Epochs that no job can have reached since
/// `known` are ignored.
long long granted_after(long long known, std::span<const long long> accepted);

}  // namespace ddp::launch
