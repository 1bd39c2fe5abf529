#include "trainer/data/text/text_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

int64_t split_position(const DataConfig& config, const DataSource& source) {
  if (source.evaluation) return source.training_tokens;
  return static_cast<int64_t>(static_cast<double>(source.training_tokens) * config.train_split);
}

/// auto: half a block, less where an epoch would have fewer samples than that.
int64_t stride_of(const DataConfig& config, int64_t training_tokens) {
  constexpr int64_t kWantedSamples = 512;
  if (!config.stride.automatic) return static_cast<int64_t>(config.stride.value);
  const int64_t most = std::max<int64_t>(1, config.block_size / 2);
  return std::clamp<int64_t>((training_tokens - config.block_size) / kWantedSamples, 1, most);
}

/// The keys, with values, that make a training set of so many tokens, `samples` with the present
/// ones; "" when nothing does.
std::string sizes_that_fit(const DataConfig& config, int64_t tokens, int64_t samples,
                           int64_t batch_size) {
  constexpr int64_t kShortestUseful = 8;
  const auto sizes = [](int64_t block_size) {
    const auto rounded = std::bit_floor(static_cast<uint64_t>(block_size));
    return fmt::format("data_config.block_size={} data_config.stride=1", rounded);
  };
  if (tokens - config.block_size >= batch_size) return "data_config.stride=1";
  if (tokens - batch_size >= kShortestUseful) return sizes(tokens - batch_size);
  if (samples > 0) return fmt::format("trainer_config.batch_size={}", samples);
  if (tokens < 2) return "";
  return fmt::format("{} trainer_config.batch_size={}", sizes(tokens / 2), tokens / 2);
}

WindowFormat window_format(const DataConfig& config, const Tokenizer& tokenizer) {
  WindowFormat format{config.block_size};
  if (!config.mask_documents) return format;
  format.document_end = tokenizer.end_of_text();
  if (format.document_end) return format;
  throw UserError(fmt::format(
      "data_config.mask_documents: the tokenizer ({}) has no end-of-text token to tell documents "
      "apart; name the folder of one that has, such as GPT-2's, or remove it",
      tokenizer.kind()));
}

}  // namespace

TextDataset::TextDataset(const DataConfig& config, std::unique_ptr<Tokenizer> tokenizer,
                         int64_t batch_size)
    : TextDataset(config, open_data(config, std::move(tokenizer))) {
  if (training_.size() < batch_size && config.train_split > 0.0) refuse(config, batch_size);
  if (!source_.evaluation || evaluation_.size() > 0) return;
  throw UserError(
      fmt::format("data_config.eval_path: {}: has fewer than two tokens; give a longer text",
                  config.eval_path));
}

TextDataset::TextDataset(const DataConfig& config, DataSource source)
    : source_(std::move(source)),
      split_(split_position(config, source_)),
      training_(tokens(), training_range(), window_format(config, tokenizer()),
                stride_of(config, split_)),
      evaluation_(source_.evaluation ? *source_.evaluation : tokens(), evaluation_range(),
                  window_format(config, tokenizer()), std::nullopt) {}

void TextDataset::refuse(const DataConfig& config, int64_t batch_size) const {
  if (tokens().size() == 0)
    throw UserError(fmt::format("data_config.path: {}: holds no text", config.path));
  const std::string fits = sizes_that_fit(config, split_, training_.size(), batch_size);
  throw UserError(fmt::format(
      "data_config.path: {}: the training part has {} {} (truncate {}, train_split {}), which make "
      "{} samples of block_size + 1 = {}, fewer than trainer_config.batch_size {}; use a longer "
      "text{}",
      config.path, split_, tokenizer().kind() == "char" ? "characters" : "tokens", config.truncate,
      config.train_split, training_.size(), config.block_size + 1, batch_size,
      fits.empty() ? "" : ", or " + fits));
}

TokenRange TextDataset::evaluation_range() const {
  if (source_.evaluation) return {0, source_.evaluation->size()};
  return {split_, used_tokens()};
}

}  // namespace ddp::train
