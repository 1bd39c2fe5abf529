#include "trainer/data/data_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "trainer/data/memory_tokens.h"
#include "trainer/data/token_shards.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/sha256.h"
#include "trainer/tokenizer/byte_tokenizer.h"
#include "trainer/tokenizer/char_tokenizer.h"
#include "trainer/tokenizer/tokenizer_folder.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPath = "data_config.path";
constexpr const char* kEvalPath = "data_config.eval_path";

/// Errors of what is below say which key they come from.
template <typename Work>
auto with_key(const char* key, const Work& work) {
  try {
    return work();
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", key, error.what()));
  }
}

bool holds_tokens(const DataConfig& config) {
  if (config.format != DataFormat::kAuto) return config.format == DataFormat::kTokens;
  const auto files = find_data_files(config.path, ".bin");
  if (!files.empty()) return fs::path(files.front()).extension() == ".bin";
  return false;
}

std::string read_text(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored))
    throw UserError(path + ": is not a regular file; name a text file");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UserError(fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string read_texts(const std::string& path) {
  const auto files = find_data_files(path, ".txt");
  std::error_code ignored;
  if (files.empty() && fs::is_directory(path, ignored))
    throw UserError(path + ": holds no .txt file, nor .bin files of tokens; name a file");
  if (files.empty()) throw UserError(path + ": cannot read: no such file, folder or glob");
  std::string text;
  for (const std::string& file : files) text += read_text(file);
  return text;
}

std::unique_ptr<Tokenizer> tokenizer_of_text(const DataConfig& config, std::string_view text,
                                             std::unique_ptr<Tokenizer> of_snapshot) {
  if (config.tokenizer == "byte") return std::make_unique<ByteTokenizer>();
  if (!config.tokenizer.empty() && config.tokenizer != "char")
    return load_tokenizer(config.tokenizer);
  if (of_snapshot) return of_snapshot;
  return std::make_unique<CharTokenizer>(CharTokenizer::from_text(text));
}

std::unique_ptr<TokenSequence> encode_text(const Tokenizer& tokenizer, const std::string& path,
                                           std::string_view text) {
  try {
    return std::make_unique<MemoryTokens>(tokenizer.encode(text), sha256_hex(text));
  } catch (const UserError& error) {
    throw UserError(path + ": " + error.what());
  }
}

DataSource open_text(const DataConfig& config, std::unique_ptr<Tokenizer> of_snapshot) {
  DataSource source;
  source.from_text = true;
  with_key(kPath, [&] {
    const std::string whole = read_texts(config.path);
    const std::string_view text = truncate_text(whole, config.truncate);
    source.characters_in_files = count_characters(whole);
    source.tokenizer = tokenizer_of_text(config, text, std::move(of_snapshot));
    source.training = encode_text(*source.tokenizer, config.path, text);
  });
  source.training_tokens = source.training->size();
  if (!config.eval_path.empty()) {
    source.evaluation = with_key(kEvalPath, [&] {
      return encode_text(*source.tokenizer, config.eval_path, read_texts(config.eval_path));
    });
  }
  return source;
}

std::unique_ptr<Tokenizer> tokenizer_of_tokens(const DataConfig& config,
                                               const std::string& first_file,
                                               std::unique_ptr<Tokenizer> of_snapshot) {
  if (config.tokenizer == "byte") return std::make_unique<ByteTokenizer>();
  if (config.tokenizer == "char")
    throw UserError(
        "data_config.tokenizer: char: is made from a text; name the folder with the "
        "tokenizer.json of these tokens");
  if (!config.tokenizer.empty())
    return with_key("data_config.tokenizer", [&] { return load_tokenizer(config.tokenizer); });
  if (of_snapshot) return of_snapshot;
  const fs::path beside = fs::path(first_file).parent_path() / "tokenizer.json";
  std::error_code ignored;
  if (fs::exists(beside, ignored)) return load_tokenizer(beside);
  throw UserError(fmt::format(
      "{}: has no tokenizer.json beside it (was trainer tokenize interrupted?); name the folder of "
      "its tokenizer as data_config.tokenizer",
      first_file));
}

std::unique_ptr<TokenSequence> open_tokens(const char* key, const std::vector<std::string>& files,
                                           const Tokenizer& tokenizer) {
  return with_key(key, [&] {
    return std::make_unique<TokenShards>(
        files, ShardUse{tokenizer.size(), tokenizer_fingerprint(tokenizer)});
  });
}

DataSource open_shards(const DataConfig& config, std::unique_ptr<Tokenizer> of_snapshot) {
  DataSource source;
  const auto files = with_key(kPath, [&] { return find_shards(config.path); });
  source.tokenizer = tokenizer_of_tokens(config, files.front(), std::move(of_snapshot));
  source.training = open_tokens(kPath, files, *source.tokenizer);
  const double share = static_cast<double>(source.training->size()) * config.truncate;
  source.training_tokens =
      config.truncate >= 1 ? source.training->size() : static_cast<int64_t>(share);
  if (!config.eval_path.empty()) {
    const auto others = with_key(kEvalPath, [&] { return find_shards(config.eval_path); });
    source.evaluation = open_tokens(kEvalPath, others, *source.tokenizer);
  }
  return source;
}

}  // namespace

DataSource open_data(const DataConfig& config, std::unique_ptr<Tokenizer> of_snapshot) {
  return holds_tokens(config) ? open_shards(config, std::move(of_snapshot))
                              : open_text(config, std::move(of_snapshot));
}

}  // namespace ddp::train
