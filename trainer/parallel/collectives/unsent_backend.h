// A backend for passes whose gradients are discarded: the Reducer of a CPU model lays out its
// buckets without sending them.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace ddp::train {

/// Broadcasts, by which the ranks agree on a layout, go to `real`; all-reduces complete at once and
/// leave the tensors unchanged. Supports nothing else.
c10::intrusive_ptr<c10d::Backend> make_unsent_backend(c10::intrusive_ptr<c10d::Backend> real);

}  // namespace ddp::train
