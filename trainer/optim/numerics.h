// The precision of torch's computations: process-wide switches of LibTorch.
#pragma once

#include <torch/torch.h>

#include <string>

#include "trainer/config/trainer_config.h"

namespace ddp::train {

/// Sets them from trainer_config.tf32 and .deterministic, also back to off. Call before the first
/// kernel on a GPU: cuBLAS reads CUBLAS_WORKSPACE_CONFIG, set here if unset, only once. Throws
/// UserError if that variable contradicts `deterministic`.
void apply_numerics(const TrainerConfig& config, torch::Device device);

/// "" or the problem of a CUBLAS_WORKSPACE_CONFIG of this value (null: not set) and the fix.
std::string cublas_workspace_trouble(const char* value);

/// Returns the precision of matrix products: "float32", "tf32", "BFloat16 autocast".
std::string precision_name(const TrainerConfig& config, torch::Device device);

}  // namespace ddp::train
