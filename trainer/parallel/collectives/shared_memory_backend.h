// All-reduces between ranks of one machine through shared memory, where Gloo would use loopback
// sockets.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <memory>
#include <vector>

#include "trainer/parallel/collectives/process_ends.h"
#include "trainer/parallel/collectives/row_collectives.h"
#include "trainer/parallel/collectives/shared_reduce.h"
#include "trainer/parallel/collectives/shared_segment.h"

namespace ddp::train {

/// The mapped segments of all ranks of a group, and a watch over the ranks' processes.
struct SharedParts {
  std::vector<SharedSegment> of_ranks;
  std::unique_ptr<ProcessEnds> ends;  ///< In the order of of_ranks; includes this process.
};

/// Sums and maxima of float32, float64, int32, int64 and uint8 on CPUs go through `parts`, in the
/// order of the calls; an all-reduce without asyncOp runs on the caller's thread if it is the only
/// one. All else goes to `gloo`, 16-bit types included: with three and more ranks their sums depend
/// on Gloo's order. If a rank has ended, all-reduces fail as Gloo's do, with "Connection closed by
/// peer". The backend is also a RowCollectives, over float32 and float64.
c10::intrusive_ptr<c10d::Backend> make_shared_memory_backend(c10::intrusive_ptr<c10d::Backend> gloo,
                                                             SharedParts parts,
                                                             std::chrono::milliseconds timeout);

}  // namespace ddp::train
