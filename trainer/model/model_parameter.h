#pragma once

#include <torch/torch.h>

#include <string>

#include "trainer/config/param_groups.h"

namespace ddp::train {

/// One parameter as the optimizer and the snapshot see it.
struct ModelParameter {
  std::string name;
  torch::Tensor tensor;
  ParameterRole role = ParameterRole::kOther;
};

}  // namespace ddp::train
