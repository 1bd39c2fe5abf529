// --rank-order: the sort order of an elastic job's nodes.
#pragma once

#include "launcher/base/command.h"
#include "launcher/cli/option_values.h"
#include "launcher/rendezvous/group_settings.h"

namespace ddp::launch {

/// Sets rules.rank_order and this node's sort_key: with `host` its place in Slurm's topology, or
/// Slurm's number of the node, if srun started it; with the name of an environment variable that
/// variable's value. Throws LaunchError (2) if that variable is unset or has an unusable value.
void take_rank_order(GroupSettings& group, const OptionValues& values,
                     const Environment& environment);

}  // namespace ddp::launch
