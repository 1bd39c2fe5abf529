#include "trainer/data/char_dataset.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "trainer/runtime/error.h"
#include "trainer/runtime/sha256.h"

namespace ddp::train {
namespace {

std::string read_text(const DataConfig& config) {
  std::error_code ignored;
  if (std::filesystem::exists(config.path, ignored) &&
      !std::filesystem::is_regular_file(config.path, ignored)) {
    throw UserError(
        fmt::format("data_config.path: {}: is not a regular file; name a text file", config.path));
  }
  std::ifstream file(config.path, std::ios::binary);
  if (!file) {
    throw UserError(
        fmt::format("data_config.path: {}: cannot read: {}", config.path, std::strerror(errno)));
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int64_t TrainingWindows::size() const {
  const auto last_start = static_cast<int64_t>(tokens.size()) - (block_size + 1);
  return last_start < 0 ? 0 : last_start / stride + 1;
}

int64_t EvaluationWindows::size() const {
  const auto targets = static_cast<int64_t>(tokens.size()) - 1;
  return targets < 1 ? 0 : (targets + block_size - 1) / block_size;
}

CharDataset::CharDataset(const DataConfig& config, const CharVocabulary* vocabulary)
    : config_(config), vocabulary_(CharVocabulary::from_characters({})) {
  const std::string whole = read_text(config);
  characters_in_file_ = count_characters(whole);
  const std::string_view text = truncate_text(whole, config.truncate);
  try {
    vocabulary_ = vocabulary != nullptr ? *vocabulary : CharVocabulary::from_text(text);
    tokens_ = vocabulary_.encode(text);
  } catch (const UserError& error) {
    throw UserError(fmt::format("data_config.path: {}: {}", config.path, error.what()));
  }
  sha256_ = sha256_hex(text);
  split_ = static_cast<std::size_t>(static_cast<double>(tokens_.size()) * config.train_split);
  if (training().size() == 0) {
    throw UserError(fmt::format(
        "data_config.path: {}: the training part has {} characters (truncate {}, train_split {}), "
        "but one sample needs "
        "block_size + 1 = {}; use a longer text or a smaller data_config.block_size",
        config.path, split_, config.truncate, config.train_split, config.block_size + 1));
  }
}

TrainingWindows CharDataset::training() const {
  return {std::span(tokens_).first(split_), config_.block_size, config_.stride};
}

EvaluationWindows CharDataset::evaluation() const {
  return {std::span(tokens_).subspan(split_), config_.block_size};
}

}  // namespace ddp::train
