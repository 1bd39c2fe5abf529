// The norm of gradients that ranks hold parts of, in numbers that show the order of the sum.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <string>
#include <vector>

#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/strategy/gradient_norm.h"
#include "trainer/run/strategy/model_norm.h"

namespace ddp::train::test {

/// In the model's order. The squares of the first are exactly those of a number half way between
/// two of float32, which is rounded to the lower one. The others' squares are each too small to
/// change that sum in float64, and all of them together, added before it, are not.
inline std::vector<torch::Tensor> order_showing_gradients() {
  std::vector<torch::Tensor> gradients = {torch::tensor(
      {1.0, std::ldexp(1.0, -12), std::ldexp(1.0, -12), std::ldexp(1.0, -24)}, torch::kFloat32)};
  for (int i = 0; i < 32; ++i)
    gradients.push_back(torch::full({1}, std::ldexp(1.0, -27), torch::kFloat32));
  return gradients;
}

/// What is wrong on a rank that holds every other parameter, the last rank the first one; or "".
inline std::string wrong_in_model_norm(ProcessGroup& group) {
  const auto all = order_showing_gradients();
  std::vector<Parameter> parameters;
  std::vector<torch::Tensor> gradients;
  TensorLayouts layouts;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    if (place % group.size() != group.size() - 1 - group.rank()) continue;
    const std::string name = std::to_string(i);
    const auto layout = TensorLayout::whole(all[i].sizes().vec(), /*counted=*/true, place);
    parameters.push_back({name, torch::zeros_like(all[i])});
    if (i % 3 == 0)
      parameters.back().layout = layout;  // as of a shard
    else
      layouts[name] = layout;
    gradients.push_back(all[i]);
  }
  const float norm = ModelNorm(parameters, layouts, group).of(gradients).item<float>();
  if (norm != gradient_norm(all).item<float>()) return "another norm than one process has";
  const std::vector<torch::Tensor> turned(all.rbegin(), all.rend());
  return norm != gradient_norm(turned).item<float>() ? "" : "the order makes no difference";
}

}  // namespace ddp::train::test
