#include "trainer/data/text_dataset.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "trainer/data/memory_tokens.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/sha256.h"
#include "trainer/tokenizer/char_tokenizer.h"

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

EncodedText encode_text(const DataConfig& config, std::unique_ptr<Tokenizer> tokenizer) {
  const std::string whole = read_text(config);
  const std::string_view text = truncate_text(whole, config.truncate);
  try {
    if (!tokenizer) tokenizer = std::make_unique<CharTokenizer>(CharTokenizer::from_text(text));
    auto tokens = std::make_unique<MemoryTokens>(tokenizer->encode(text), sha256_hex(text));
    return {std::move(tokenizer), std::move(tokens), count_characters(whole)};
  } catch (const UserError& error) {
    throw UserError(fmt::format("data_config.path: {}: {}", config.path, error.what()));
  }
}

}  // namespace

TextDataset::TextDataset(const DataConfig& config, std::unique_ptr<Tokenizer> tokenizer)
    : TextDataset(config, encode_text(config, std::move(tokenizer))) {}

TextDataset::TextDataset(const DataConfig& config, EncodedText text)
    : text_(std::move(text)),
      split_(static_cast<int64_t>(static_cast<double>(tokens().size()) * config.train_split)),
      training_(tokens(), training_range(), config.block_size, config.stride),
      evaluation_(tokens(), evaluation_range(), config.block_size) {
  if (training_.size() == 0) {
    throw UserError(fmt::format(
        "data_config.path: {}: the training part has {} characters (truncate {}, train_split {}), "
        "but one sample needs "
        "block_size + 1 = {}; use a longer text or a smaller data_config.block_size",
        config.path, split_, config.truncate, config.train_split, config.block_size + 1));
  }
}

}  // namespace ddp::train
