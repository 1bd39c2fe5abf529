#include "trainer/model/sampling.h"

#include <algorithm>
#include <limits>

namespace ddp::train {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

torch::Tensor penalise(const torch::Tensor& scores_BV, const torch::Tensor& seen_BV,
                       double penalty) {
  const auto penalised = torch::where(scores_BV < 0, scores_BV * penalty, scores_BV / penalty);
  return torch::where(seen_BV, penalised, scores_BV);
}

torch::Tensor keep_top_k(const torch::Tensor& scores_BV, int64_t k) {
  const auto best_Bk = std::get<0>(scores_BV.topk(std::min(k, scores_BV.size(1))));
  return scores_BV.masked_fill(scores_BV < best_Bk.slice(1, -1), kNever);
}

torch::Tensor keep_top_p(const torch::Tensor& scores_BV, double p) {
  const auto [sorted_BV, indices_BV] = scores_BV.sort(/*dim=*/-1, /*descending=*/false);
  auto unlikely_BV = sorted_BV.softmax(-1).cumsum(-1) <= 1.0 - p;
  unlikely_BV.slice(1, -1).fill_(false);
  return scores_BV.masked_fill(unlikely_BV.scatter(1, indices_BV, unlikely_BV), kNever);
}

torch::Tensor keep_min_p(const torch::Tensor& scores_BV, double share) {
  const auto probabilities_BV = scores_BV.softmax(-1);
  const auto least_B1 = probabilities_BV.amax(-1, /*keepdim=*/true) * share;
  return scores_BV.masked_fill(probabilities_BV < least_B1, kNever);
}

}  // namespace

torch::Tensor process_logits(const torch::Tensor& logits_BV, const torch::Tensor& seen_BV,
                             const SamplingOptions& options) {
  auto scores_BV = logits_BV.to(torch::kFloat32);
  if (options.repetition_penalty != 1.0)
    scores_BV = penalise(scores_BV, seen_BV, options.repetition_penalty);
  if (options.greedy) return scores_BV;
  // From the largest down: no overflow, and never 0 / 0, however cold.
  const double temperature =
      std::max(options.temperature, static_cast<double>(std::numeric_limits<float>::min()));
  scores_BV = (scores_BV - scores_BV.amax(-1, /*keepdim=*/true)) / temperature;
  if (options.top_k) scores_BV = keep_top_k(scores_BV, *options.top_k);
  if (options.top_p < 1.0) scores_BV = keep_top_p(scores_BV, options.top_p);
  if (options.min_p > 0.0) scores_BV = keep_min_p(scores_BV, options.min_p);
  return scores_BV;
}

torch::Tensor draw_tokens(const torch::Tensor& scores_BV, const torch::Tensor& draws_B) {
  // Where algorithms have to be deterministic, a GPU has no sum for this.
  const bool on_cpu = at::globalContext().deterministicAlgorithms();
  const torch::Device place = on_cpu ? torch::kCPU : scores_BV.device();
  const auto cumulated_BV = scores_BV.to(place, torch::kFloat64).softmax(-1).cumsum(-1);
  // The last sum is 1 but for rounding, and the draw stays below it.
  const auto thresholds_B1 = draws_B.to(place).unsqueeze(1) * cumulated_BV.slice(1, -1);
  return torch::searchsorted(cumulated_BV, thresholds_B1, /*out_int32=*/false, /*right=*/true)
      .squeeze(1)
      .to(scores_BV.device());
}

}  // namespace ddp::train
