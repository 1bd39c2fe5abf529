#include "trainer/task/evaluator.h"

#include <algorithm>

#include "trainer/data/data_loader.h"
#include "trainer/optim/amp.h"

namespace ddp::train {

std::optional<EvalResult> evaluate(GPT& model, const EvaluationWindows& windows, int64_t batch_size,
                                   ProcessGroup& group, torch::Device device,
                                   std::optional<torch::ScalarType> amp_dtype,
                                   const std::function<bool()>& go_on,
                                   const std::function<void()>& before_wait) {
  const torch::NoGradGuard no_grad;
  const bool was_training = model->is_training();
  model->eval();
  const int64_t rows = windows.size();
  const int64_t batches = (rows + batch_size - 1) / batch_size;
  auto sums = torch::zeros({batches}, torch::kFloat64);
  bool stopped = false;
  for (int64_t round = 0; round * group.size() < batches && !stopped; ++round) {
    auto wish = group.all_reduce_max_async(go_on() ? 0 : 1);  // on its way while we compute
    const int64_t i = round * group.size() + group.rank();
    if (i < batches) {
      const int64_t first = i * batch_size;
      const Batch batch = evaluation_batch(windows, first, std::min(batch_size, rows - first));
      const Autocast autocast(device.type(), amp_dtype);
      sums[i] = model->loss_sum(batch.inputs.to(device), batch.targets.to(device))
                    .to(torch::kFloat64)
                    .cpu();
    }
    before_wait();
    stopped = wish.wait() != 0;
  }
  model->train(was_training);
  if (stopped) return std::nullopt;
  group.all_reduce_sum(sums);  // each entry is non-zero on one rank only: exact
  const auto* values = sums.const_data_ptr<double>();
  EvalResult result;
  for (int64_t i = 0; i < batches; ++i) result.loss += values[i];
  result.tokens = static_cast<int64_t>(windows.tokens.size()) - 1;
  result.loss /= static_cast<double>(result.tokens);
  return result;
}

}  // namespace ddp::train
