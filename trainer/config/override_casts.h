// int(), float(), str() and bool() of Hydra's override grammar.
#pragma once

#include "trainer/config/sweep.h"
#include "trainer/config/tree.h"

namespace ddp::train {

/// One scalar to another; each throws std::invalid_argument for what Python refuses.
using Cast = Node (*)(const Node&);
Node cast_int(const Node& value);
Node cast_float(const Node& value);
Node cast_str(const Node& value);
Node cast_bool(const Node& value);

/// A cast reaches into lists, the values of maps, and the values of a sweep.
SweepItem cast_item(const SweepItem& item, Cast cast);
Sweep cast_sweep(Sweep sweep, Cast cast);

}  // namespace ddp::train
