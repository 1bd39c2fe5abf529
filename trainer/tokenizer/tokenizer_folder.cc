#include "trainer/tokenizer/tokenizer_folder.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/files/lower_extension.h"
#include "trainer/runtime/files/small_file.h"
#include "trainer/runtime/with_key.h"
#include "trainer/tokenizer/bpe/bpe_file.h"
#include "trainer/tokenizer/bpe/bpe_tokenizer.h"
#include "trainer/tokenizer/special_tokens.h"
#include "trainer/tokenizer/wordpiece/wordpiece_file.h"
#include "trainer/tokenizer/wordpiece/wordpiece_tokenizer.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

std::string read_whole(const std::string& path) {
  constexpr uint64_t kMostBytes = uint64_t{128} << 20U;  // the largest ones known have 35 MB
  if (auto text = read_small_file(path, kMostBytes)) return *std::move(text);
  throw UserError("cannot read " + path + ": " + std::strerror(errno));
}

std::unique_ptr<Tokenizer> load_vocab_and_merges(const fs::path& folder) {
  const std::string vocab = folder / "vocab.json";
  const std::string merges = folder / "merges.txt";
  BpeSpec spec = parse_vocab_and_merges(read_whole(vocab), vocab, read_whole(merges), merges);
  set_end_of_text(spec, end_of_text_in(folder));
  return std::make_unique<BpeTokenizer>(std::move(spec));
}

/// Takes the settings for capitals and accents from a tokenizer_config.json next to it.
std::unique_ptr<Tokenizer> load_vocab_txt(const fs::path& file) {
  const std::string config = file.parent_path() / "tokenizer_config.json";
  WordpieceSpec spec = parse_vocab_txt(read_whole(file), file);
  if (const auto text = read_file_if_present(config))
    spec.words = read_word_options(parse_bounded_json(*text, config));
  return with_key(file.native(),
                  [&] { return std::make_unique<WordpieceTokenizer>(std::move(spec)); });
}

}  // namespace

bool holds_tokenizer(const std::string& folder) {
  if (folder.empty()) return false;  // or it would be the working directory
  const auto holds = [&](const char* file) { return file_exists(fs::path(folder) / file); };
  return holds("tokenizer.json") || holds("vocab.json") || holds("vocab.txt");
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  std::error_code unknown;
  const fs::path place(path);
  if (!file_exists(path))
    throw UserError(path +
                    ": no such folder; a tokenizer is char, byte, bpe, wordpiece or a folder with "
                    "tokenizer.json");
  if (lower_extension(place) == ".txt" && fs::is_regular_file(place, unknown))
    return load_vocab_txt(place);
  if (!fs::is_directory(place, unknown)) {
    const bool named = place.filename() == "tokenizer.json";
    return parse_tokenizer(read_whole(path), path,
                           named ? fs::absolute(place).parent_path().string() : "");
  }
  const std::string whole = place / "tokenizer.json";
  if (file_exists(whole)) return parse_tokenizer(read_whole(whole), whole, path);
  if (file_exists(place / "vocab.json")) return load_vocab_and_merges(place);
  if (file_exists(place / "vocab.txt")) return load_vocab_txt(place / "vocab.txt");
  throw UserError(
      path +
      ": holds no tokenizer.json, nor vocab.json with merges.txt, nor vocab.txt; write one "
      "with trainer tokenize");
}

std::unique_ptr<Tokenizer> load_tokenizer(std::string_view key, const std::string& path) {
  return with_key(key, [&] { return load_tokenizer(path); });
}

}  // namespace ddp::train
