// The numbers by which later rounds of a job are told from earlier ones, where its hosts agree on
// them without an authority.
#pragma once

#include <string>

namespace ddp::launch {

/// The first epoch of a host that follows a round with this one; -1: there was none. No two hosts
/// propose the same epoch: a later host's are greater, and of two that follow the same host each
/// has a range of its own.
long long tenure_after(long long epoch, const std::string& host_id);

/// Whether so many hosts can have followed each other between two epochs. One that is further ahead
/// is made up, and after it no epochs would be left.
bool can_follow(long long epoch, long long known);

}  // namespace ddp::launch
