// A backend for passes whose gradients nobody needs: the Reducer of a CPU model lays its buckets
// out without sending them.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace ddp::train {

/// Broadcasts, by which the ranks agree on a layout, go to `real`; all-reduces end at once and
/// leave the tensors as they are. Knows nothing else.
c10::intrusive_ptr<c10d::Backend> make_unsent_backend(c10::intrusive_ptr<c10d::Backend> real);

}  // namespace ddp::train
