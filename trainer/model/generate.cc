#include "trainer/model/generate.h"

#include <algorithm>
#include <limits>

namespace ddp::train {
namespace {

int64_t draw(torch::Tensor logits_V, const SamplingOptions& options, at::Generator& generator) {
  if (options.greedy) return logits_V.argmax().item<int64_t>();
  logits_V = (logits_V - logits_V.max()) / options.temperature;  // no overflow, however cold
  if (options.top_k && *options.top_k < logits_V.size(0)) {
    const auto smallest = std::get<0>(logits_V.topk(*options.top_k))[-1];
    logits_V = logits_V.masked_fill(logits_V < smallest, -std::numeric_limits<float>::infinity());
  }
  return at::multinomial(torch::softmax(logits_V, 0), 1, /*replacement=*/false, generator)
      .item<int64_t>();
}

}  // namespace

void generate(GPT& model, std::vector<int32_t> prompt, const SamplingOptions& options,
              const std::function<void(int64_t)>& emit) {
  const torch::InferenceMode inference;
  model->eval();
  auto generator = at::make_generator<at::CPUGeneratorImpl>(options.seed);
  std::vector<int64_t> context(prompt.begin(), prompt.end());
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    const auto length =
        std::min<int64_t>(static_cast<int64_t>(context.size()), model->block_size());
    const auto idx_BT = torch::from_blob(
        &context[context.size() - static_cast<std::size_t>(length)], {1, length}, torch::kInt64);
    const auto logits_V = model->forward(idx_BT)[0][-1].to(torch::kFloat32);
    context.push_back(draw(logits_V, options, generator));
    emit(context.back());
  }
}

}  // namespace ddp::train
