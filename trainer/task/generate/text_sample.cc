#include "trainer/task/generate/text_sample.h"

#include <algorithm>
#include <utility>

#include "trainer/data/data_loader.h"
#include "trainer/task/generate/generate.h"
#include "trainer/tokenizer/text_stream.h"

namespace ddp::train {
namespace {

/// Returns false when it was asked to stop.
bool write_on(BatchGenerator& generator, const Tokenizer& tokenizer, std::optional<int32_t> end,
              int64_t most, const std::function<bool()>& go_on, TextStream& stream,
              std::string& text) {
  for (int64_t i = 0; i < most; ++i) {
    if (!go_on()) return false;
    const int32_t token = generator.next().front();
    if (token == end) break;
    text += stream.add(tokenizer.decode(token));
  }
  text += stream.finish();
  return true;
}

}  // namespace

std::optional<std::string> sample_text(CausalModel& model, const Tokenizer& tokenizer,
                                       std::vector<int32_t> prompt, std::optional<int32_t> end,
                                       const SamplingOptions& options,
                                       const std::function<bool()>& go_on) {
  const bool was_training = model.is_training();
  TextStream stream({});
  std::string text = stream.add(tokenizer.decode(prompt));
  BatchGenerator generator(model, {{std::move(prompt), options.seed}}, options);
  const bool whole =
      write_on(generator, tokenizer, end, options.max_new_tokens, go_on, stream, text);
  model.train(was_training);
  if (!whole) return std::nullopt;
  return text;
}

std::vector<int32_t> beginning_of(const SampleSource& samples) {
  constexpr int64_t kMost = 16;
  const Batch batch = batch_of(samples, 0, 1);
  // Behind the end of a short sample there is padding, which has no targets.
  const int64_t tokens = std::max<int64_t>(1, batch.target_count);
  const auto first = batch[kInputs][0].slice(0, 0, std::min(kMost, tokens)).to(torch::kInt32);
  const auto* ids = first.const_data_ptr<int32_t>();
  return {ids, ids + first.numel()};
}

}  // namespace ddp::train
