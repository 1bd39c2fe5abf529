#include "trainer/data/text_dataset.h"

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

/// What makes a text of so many tokens a training set: as many windows as a block has tokens.
std::string sizes_that_fit(int64_t training_tokens) {
  if (training_tokens < 2) return "";
  const auto block_size = std::bit_floor(static_cast<uint64_t>(training_tokens) / 2);
  return fmt::format(", or data_config.block_size={} data_config.stride=1", block_size);
}

}  // namespace

TextDataset::TextDataset(const DataConfig& config, std::unique_ptr<Tokenizer> tokenizer)
    : TextDataset(config, open_data(config, std::move(tokenizer))) {}

TextDataset::TextDataset(const DataConfig& config, DataSource source)
    : source_(std::move(source)),
      split_(split_position(config, source_)),
      training_(tokens(), training_range(), config.block_size, stride_of(config, split_)),
      evaluation_(source_.evaluation ? *source_.evaluation : tokens(), evaluation_range(),
                  config.block_size) {
  if (training_.size() > 0 || config.train_split == 0.0) return;
  if (tokens().size() == 0)
    throw UserError(fmt::format("data_config.path: {}: holds no text", config.path));
  throw UserError(fmt::format(
      "data_config.path: {}: the training part has {} {} (truncate {}, train_split {}), but one "
      "sample needs block_size + 1 = {}; use a longer text{}",
      config.path, split_, tokenizer().kind() == "char" ? "characters" : "tokens", config.truncate,
      config.train_split, config.block_size + 1, sizes_that_fit(split_)));
}

TokenRange TextDataset::evaluation_range() const {
  if (source_.evaluation) return {0, source_.evaluation->size()};
  return {split_, used_tokens()};
}

}  // namespace ddp::train
