// Reduces gradients in 16 bits: a communication hook of c10d's Reducer.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

namespace ddp::train {

/// As torch.distributed.algorithms.ddp_comm_hooks.default_hooks' bf16_compress_hook and
/// fp16_compress_hook: each rank divides by the number of ranks and rounds to `type`, the sum is
/// made in `type`, the result is copied back. On all ranks the same; with Gloo and NCCL.
std::unique_ptr<c10d::CommHookInterface> make_compress_hook(
    c10::intrusive_ptr<c10d::ProcessGroup> group, torch::ScalarType type);

}  // namespace ddp::train
