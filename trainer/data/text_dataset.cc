#include "trainer/data/text_dataset.h"

#include <fmt/format.h>

#include <utility>

#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

int64_t split_position(const DataConfig& config, const DataSource& source) {
  if (source.evaluation) return source.training_tokens;
  return static_cast<int64_t>(static_cast<double>(source.training_tokens) * config.train_split);
}

}  // namespace

TextDataset::TextDataset(const DataConfig& config, std::unique_ptr<Tokenizer> tokenizer)
    : TextDataset(config, open_data(config, std::move(tokenizer))) {}

TextDataset::TextDataset(const DataConfig& config, DataSource source)
    : source_(std::move(source)),
      split_(split_position(config, source_)),
      training_(tokens(), training_range(), config.block_size, config.stride),
      evaluation_(source_.evaluation ? *source_.evaluation : tokens(), evaluation_range(),
                  config.block_size) {
  if (training_.size() == 0 && config.train_split > 0.0) {
    throw UserError(fmt::format(
        "data_config.path: {}: the training part has {} {} (truncate {}, train_split {}), but one "
        "sample needs block_size + 1 = {}; use a longer text or a smaller data_config.block_size",
        config.path, split_, tokenizer().kind() == "char" ? "characters" : "tokens",
        config.truncate, config.train_split, config.block_size + 1));
  }
}

TokenRange TextDataset::evaluation_range() const {
  if (source_.evaluation) return {0, source_.evaluation->size()};
  return {split_, used_tokens()};
}

}  // namespace ddp::train
