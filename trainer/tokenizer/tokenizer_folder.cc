#include "trainer/tokenizer/tokenizer_folder.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "trainer/runtime/error.h"
#include "trainer/tokenizer/bounded_json.h"
#include "trainer/tokenizer/bpe_file.h"
#include "trainer/tokenizer/bpe_tokenizer.h"
#include "trainer/tokenizer/wordpiece_file.h"
#include "trainer/tokenizer/wordpiece_tokenizer.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = std::size_t{256} << 20U;  // the largest ones known have 20 MB

std::string read_whole(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (!file) throw UserError("cannot read " + path + ": " + std::strerror(errno));
  std::string text;
  char block[1U << 16U];
  while (const std::size_t bytes = std::fread(block, 1, sizeof block, file.get())) {
    text.append(block, bytes);
    if (text.size() > kMostBytes) throw UserError(path + ": is too large for a tokenizer file");
  }
  if (std::ferror(file.get()) != 0)
    throw UserError("cannot read " + path + ": " + std::strerror(errno));
  return text;
}

std::unique_ptr<Tokenizer> load_vocab_and_merges(const fs::path& folder) {
  const std::string vocab = folder / "vocab.json";
  const std::string merges = folder / "merges.txt";
  return std::make_unique<BpeTokenizer>(
      parse_vocab_and_merges(read_whole(vocab), vocab, read_whole(merges), merges));
}

/// With what a tokenizer_config.json beside it says of capitals and accents.
std::unique_ptr<Tokenizer> load_vocab_txt(const fs::path& file) {
  const std::string config = file.parent_path() / "tokenizer_config.json";
  WordpieceSpec spec = parse_vocab_txt(read_whole(file), file);
  std::error_code unknown;
  if (fs::exists(config, unknown))
    spec.words = read_word_options(parse_bounded_json(read_whole(config), config));
  try {
    return std::make_unique<WordpieceTokenizer>(std::move(spec));
  } catch (const UserError& error) {
    throw UserError(file.string() + ": " + error.what());
  }
}

}  // namespace

bool holds_tokenizer(const std::string& folder) {
  std::error_code ignored;
  const auto holds = [&](const char* file) { return fs::exists(fs::path(folder) / file, ignored); };
  return holds("tokenizer.json") || holds("vocab.json") || holds("vocab.txt");
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  std::error_code unknown;
  const fs::path place(path);
  if (!fs::exists(place, unknown))
    throw UserError(path +
                    ": no such folder; a tokenizer is char, byte, bpe, wordpiece or a folder with "
                    "tokenizer.json");
  if (place.extension() == ".txt" && fs::is_regular_file(place, unknown))
    return load_vocab_txt(place);
  if (!fs::is_directory(place, unknown)) return parse_tokenizer(read_whole(path), path);
  const std::string whole = place / "tokenizer.json";
  if (fs::exists(whole, unknown)) return parse_tokenizer(read_whole(whole), whole);
  if (fs::exists(place / "vocab.json", unknown)) return load_vocab_and_merges(place);
  if (fs::exists(place / "vocab.txt", unknown)) return load_vocab_txt(place / "vocab.txt");
  throw UserError(
      path +
      ": holds no tokenizer.json, nor vocab.json with merges.txt, nor vocab.txt; write one "
      "with trainer tokenize");
}

std::unique_ptr<Tokenizer> load_tokenizer(std::string_view key, const std::string& path) {
  try {
    return load_tokenizer(path);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", key, error.what()));
  }
}

}  // namespace ddp::train
