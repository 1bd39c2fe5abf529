// What the tests of exchanged models generate with.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "trainer/model/causal_model.h"
#include "trainer/task/generate/generate.h"

namespace ddp::train::test {

/// The `count` most likely tokens after `prompt`, one after the other.
inline torch::Tensor greedy_tokens(CausalModel& model, const std::vector<int32_t>& prompt,
                                   int64_t count) {
  SamplingOptions options;
  options.greedy = true;
  options.max_new_tokens = count;
  std::vector<int64_t> tokens;
  generate(model, prompt, options, [&](int64_t token) { tokens.push_back(token); });
  return torch::tensor(tokens, torch::kInt64);
}

}  // namespace ddp::train::test
