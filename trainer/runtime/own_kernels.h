// Whether this job computes with trainer's own GPU kernels, which stay loaded in its process.
#pragma once

namespace ddp::train {

/// Set by gpu::load_kernels() and gpu::leave_out_kernels() before the job's first operation; read
/// by all that have a kernel of their own, on the training thread.
inline bool own_kernels_in_use = false;

}  // namespace ddp::train
