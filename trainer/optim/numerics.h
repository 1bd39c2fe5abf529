// How exactly torch computes: process-wide switches of LibTorch.
#pragma once

#include <torch/torch.h>

#include <string>

#include "trainer/config/config.h"

namespace ddp::train {

/// Sets them as trainer_config.tf32 and .deterministic say, also back to off. Call before the first
/// kernel on a GPU: cuBLAS reads CUBLAS_WORKSPACE_CONFIG, which is set here when it is not, only
/// once. Throws UserError when that variable forbids what `deterministic` promises.
void apply_numerics(const TrainerConfig& config, torch::Device device);

/// "" or what is wrong with a CUBLAS_WORKSPACE_CONFIG of this value (null: not set) and the fix.
std::string cublas_workspace_trouble(const char* value);

/// What matrix products are computed in: "float32", "tf32", "BFloat16 autocast".
std::string precision_name(const TrainerConfig& config, torch::Device device);

}  // namespace ddp::train
