// Loss over the whole evaluation part: each token once, all ranks at work, the same digits for any
// number of ranks.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "trainer/data/char_dataset.h"
#include "trainer/model/gpt.h"
#include "trainer/parallel/process_group.h"

namespace ddp::train {

struct EvalResult {
  double loss = 0.0;  ///< Mean negative log-likelihood, nats per token.
  int64_t tokens = 0;
};

/// Runs in eval mode and without DDP's reducer; the model is in its former mode afterwards.
///
/// Batches are cut by position, the same ones for any number of ranks, and dealt out in turn; each
/// gives one float32 sum, and all sums are added in order of position in float64 on every rank.
///
/// `go_on` is asked before each batch; when it says no on any rank, all ranks leave out the rest
/// after their present batch and get nothing. `before_wait` is called before the ranks wait for
/// each other.
std::optional<EvalResult> evaluate(
    GPT& model, const EvaluationWindows& windows, int64_t batch_size, ProcessGroup& group,
    torch::Device device, std::optional<torch::ScalarType> amp_dtype,
    const std::function<bool()>& go_on = [] { return true; },
    const std::function<void()>& before_wait = [] {});

}  // namespace ddp::train
