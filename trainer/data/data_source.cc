#include "trainer/data/data_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "trainer/data/text/documents.h"
#include "trainer/data/tokens/memory_tokens.h"
#include "trainer/data/tokens/spilled_tokens.h"
#include "trainer/data/tokens/token_shards.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"
#include "trainer/runtime/files/lower_extension.h"
#include "trainer/runtime/files/sha256.h"
#include "trainer/runtime/utf8.h"
#include "trainer/runtime/with_key.h"
#include "trainer/tokenizer/byte_tokenizer.h"
#include "trainer/tokenizer/char_tokenizer.h"
#include "trainer/tokenizer/tokenizer_folder.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPath = "data_config.path";
constexpr const char* kEvalPath = "data_config.eval_path";

/// Several texts as one. Each is without its byte order mark.
struct Texts {
  struct File {
    std::string path;
    std::size_t start = 0;    ///< In `whole`.
    std::size_t skipped = 0;  ///< Bytes of the file in front of that.
  };
  std::string whole;
  std::vector<File> files;
};

std::ifstream open_text_file(const std::string& path) {
  std::error_code error;
  const bool regular = fs::is_regular_file(path, error);
  if (!regular && !error) throw UserError(path + ": is not a regular file; name a text file");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UserError(fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
  return file;
}

void append_text(const std::string& path, Texts& texts) {
  std::ifstream file = open_text_file(path);
  const std::size_t start = texts.whole.size();
  texts.whole.resize(start + fs::file_size(path));
  file.read(texts.whole.data() + start, static_cast<std::streamsize>(texts.whole.size() - start));
  if (file.bad()) throw UserError(fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
  texts.whole.resize(start + static_cast<std::size_t>(file.gcount()));
  const bool marked = std::string_view(texts.whole).substr(start).starts_with(kByteOrderMark);
  const std::size_t skipped = marked ? kByteOrderMark.size() : 0;
  texts.whole.erase(start, skipped);
  texts.files.push_back({path, start, skipped});
}

std::vector<std::string> find_texts(const std::string& path) {
  auto files = find_data_files(path, ".txt");
  std::error_code ignored;
  if (files.empty() && fs::is_directory(path, ignored)) {
    throw UserError(fmt::format(
        "{0}: holds no .txt file, nor .bin files of tokens; name a file, or a glob such as "
        "'{0}/*.md'",
        path));
  }
  if (files.empty()) throw UserError(path + ": cannot read: no such file, folder or glob");
  return files;
}

Texts read_texts(const std::string& path) {
  Texts texts;
  for (const std::string& file : find_texts(path)) append_text(file, texts);
  return texts;
}

/// By its name: trained on as plain text, it would teach its syntax, or noise.
void require_plain_text(const std::string& file) {
  for (const auto& [end, tool] : {std::pair{".gz", "gzip -dk"},
                                  {".zst", "zstd -dk"},
                                  {".xz", "xz -dk"},
                                  {".bz2", "bzip2 -dk"},
                                  {".zip", "unzip"}}) {
    if (lower_extension(file) == end)
      throw UserError(fmt::format("{0}: is compressed; unpack it: {1} {0}", file, tool));
  }
  if (holds_documents(file))
    throw UserError(file + ": has rows, and the files before it are texts; name them apart");
}

void require_plain_texts(const std::string& path) {
  for (const std::string& file : find_texts(path)) require_plain_text(file);
}

std::string_view text_of(const Texts& texts, std::size_t file) {
  const std::size_t start = texts.files[file].start;
  const bool last = file + 1 == texts.files.size();
  const std::size_t end = last ? texts.whole.size() : texts.files[file + 1].start;
  return std::string_view(texts.whole).substr(start, end - start);
}

/// Throws UserError naming the first file that is not UTF-8, followed by `advice`.
void require_utf8(const Texts& texts, const char* advice) {
  for (std::size_t i = 0; i < texts.files.size(); ++i) {
    const auto& [path, start, skipped] = texts.files[i];
    const std::string_view text = text_of(texts, i);
    const std::size_t bad = first_bad_byte(text);
    if (bad == std::string_view::npos) continue;
    throw UserError(fmt::format("{}: {}{}", path, not_utf8(text, bad, skipped), advice));
  }
}

std::unique_ptr<Tokenizer> tokenizer_of_text(const DataConfig& config, std::string_view text,
                                             std::unique_ptr<Tokenizer> of_snapshot) {
  if (config.tokenizer == "byte") return std::make_unique<ByteTokenizer>();
  if (!config.tokenizer.empty() && config.tokenizer != "char")
    return load_tokenizer(config.tokenizer);
  // char, when the snapshot has another kind, makes a vocabulary that the resume is refused for.
  const bool named = !config.tokenizer.empty();
  if (of_snapshot && (!named || of_snapshot->kind() == "char")) return of_snapshot;
  return std::make_unique<CharTokenizer>(CharTokenizer::from_text(text));
}

std::unique_ptr<TokenSequence> encode_text(const Tokenizer& tokenizer, std::string_view text) {
  return std::make_unique<MemoryTokens>(tokenizer.encode(text), sha256_hex(text));
}

/// `work` on the texts of `key`; what it throws names the file.
template <typename Work>
void with_texts(const char* key, const std::string& path, const Work& work) {
  with_key(key, [&] {
    require_plain_texts(path);
    const Texts texts = read_texts(path);
    try {
      work(std::string_view(texts.whole));
    } catch (const UserError& error) {
      require_utf8(texts, ", or set data_config.tokenizer=byte, which takes any bytes");
      throw UserError(path + ": " + error.what());
    }
  });
}

/// The characters of all documents, as one text.
std::string characters_of(Documents& documents) {
  std::set<uint32_t> found;
  for (std::string text; documents.next(text);)
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint point = decode_utf8(text, at);
      found.insert(point.value);
      at += std::max<std::size_t>(1, point.bytes);
    }
  std::string text = "\n";
  for (const uint32_t character : found) text += encode_utf8(character);
  return text;
}

/// The documents one after the other, each followed by the end-of-text token; where the tokenizer
/// has none, by a line end.
class EncodedDocuments {
 public:
  EncodedDocuments(const Tokenizer& tokenizer, Documents& documents)
      : tokenizer_(tokenizer), documents_(documents) {}

  std::unique_ptr<TokenSequence> all() {
    return spill_tokens(tokenizer_, [this](std::vector<int32_t>& tokens) { return next(tokens); });
  }
  int64_t characters() const { return characters_; }
  const LengthCounts& lengths() const { return lengths_; }

 private:
  bool next(std::vector<int32_t>& tokens) {
    for (std::string text; documents_.next(text);) {
      try {
        tokens = encode_document(tokenizer_, text);
      } catch (const UserError& error) {
        documents_.refuse(error.what());
        continue;
      }
      characters_ += count_characters(text);
      lengths_.add(std::ssize(tokens));
      return true;
    }
    return false;
  }

  const Tokenizer& tokenizer_;
  Documents& documents_;
  int64_t characters_ = 0;
  LengthCounts lengths_;
};

/// Opens data_config.eval_path, if it is given, with the tokenizer of `source`.
void open_evaluation(const DataConfig& config, LeftOut& left_out, DataSource& source) {
  if (config.eval_path.empty()) return;
  const auto files = find_documents(config.eval_path);
  if (files.empty()) {
    return with_texts(kEvalPath, config.eval_path, [&](std::string_view whole) {
      source.evaluation = encode_text(*source.tokenizer, whole);
    });
  }
  with_key(kEvalPath, [&] {
    Documents documents(files, {config.text_column, ""}, left_out);
    source.evaluation = EncodedDocuments(*source.tokenizer, documents).all();
  });
}

DataSource open_documents(const DataConfig& config, const std::vector<std::string>& files,
                          std::unique_ptr<Tokenizer> of_snapshot) {
  DataSource source;
  source.from_text = true;
  LeftOut left_out(config.on_bad_sample);
  with_key(kPath, [&] {
    std::string characters;
    if (!of_snapshot && (config.tokenizer.empty() || config.tokenizer == "char")) {
      LeftOut counted_later(config.on_bad_sample);
      Documents documents(files, {config.text_column, ""}, counted_later);
      characters = characters_of(documents);
    }
    source.tokenizer = tokenizer_of_text(config, characters, std::move(of_snapshot));
    Documents documents(files, {config.text_column, ""}, left_out);
    EncodedDocuments encoded(*source.tokenizer, documents);
    source.training = encoded.all();
    source.characters_in_files = encoded.characters();
    source.lengths = encoded.lengths();
    if (source.training->size() == 0)
      throw UserError(
          fmt::format("{}: has no row with a text; {}", config.path,
                      left_out.count() == 0 ? "give a file that has some" : left_out.text()));
  });
  source.training_tokens =
      static_cast<int64_t>(static_cast<double>(source.training->size()) * config.truncate);
  open_evaluation(config, left_out, source);
  source.left_out = left_out.text();
  return source;
}

DataSource open_text(const DataConfig& config, std::unique_ptr<Tokenizer> of_snapshot) {
  DataSource source;
  source.from_text = true;
  with_texts(kPath, config.path, [&](std::string_view whole) {
    const std::string_view text = truncate_text(whole, config.truncate);
    source.characters_in_files = count_characters(whole);
    source.tokenizer = tokenizer_of_text(config, text, std::move(of_snapshot));
    source.training = encode_text(*source.tokenizer, text);
  });
  source.training_tokens = source.training->size();
  LeftOut left_out(config.on_bad_sample);
  open_evaluation(config, left_out, source);
  source.left_out = left_out.text();
  return source;
}

std::unique_ptr<Tokenizer> tokenizer_of_tokens(const DataConfig& config,
                                               const std::string& first_file,
                                               std::unique_ptr<Tokenizer> of_snapshot) {
  if (config.tokenizer == "byte") return std::make_unique<ByteTokenizer>();
  if (config.tokenizer == "char")
    throw UserError(
        "data_config.tokenizer: char: is built from text; name the folder with the "
        "tokenizer.json of these tokens");
  if (!config.tokenizer.empty()) return load_tokenizer("data_config.tokenizer", config.tokenizer);
  if (of_snapshot) return of_snapshot;
  const fs::path beside = fs::path(first_file).parent_path() / "tokenizer.json";
  if (file_exists(beside)) return load_tokenizer(beside);
  throw UserError(
      fmt::format("{}: has no tokenizer.json next to it (was trainer tokenize interrupted?); name "
                  "the folder of its tokenizer as data_config.tokenizer",
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

void check_row_keys(const DataConfig& data) {
  const DataConfig usual;
  const bool column = data.text_column != usual.text_column;
  if (!column && data.on_bad_sample == usual.on_bad_sample) return;
  std::vector<std::string> paths = {data.path, data.eval_path, data.test_path};
  for (const WeightedSource& source : data.sources) paths.push_back(source.path);
  for (const NamedSet& set : data.eval_sets) paths.push_back(set.path);
  const bool rows = std::any_of(paths.begin(), paths.end(),
                                [](const auto& path) { return !find_documents(path).empty(); });
  const bool chat = data.format == DataFormat::kChat;
  if (chat ? !column : rows) return;
  throw UserError(fmt::format(
      "data_config.{}: {}; remove it", column ? "text_column" : "on_bad_sample",
      chat ? "has no effect on conversations, with data_config.format=chat"
           : "has no effect, as none of the data has rows (.jsonl, .json, .csv, .tsv, .parquet, "
             ".arrow or .feather)"));
}

std::string read_plain_text(const char* key, const std::string& path) {
  with_key(key, [&] { require_plain_texts(path); });
  return read_utf8_text(key, path);
}

std::string read_utf8_text(const char* key, const std::string& path) {
  return with_key(key, [&] {
    Texts texts = read_texts(path);
    require_utf8(texts, "");
    return std::move(texts.whole);
  });
}

bool holds_tokens(const DataConfig& config) {
  if (config.format != DataFormat::kAuto) return config.format == DataFormat::kTokens;
  const auto files = find_data_files(config.path, ".bin");
  return !files.empty() && lower_extension(files.front()) == ".bin";
}

std::string large_text_note(const DataConfig& config) {
  constexpr uint64_t kLarge = 100'000'000;
  if (config.format == DataFormat::kChat || holds_tokens(config)) return "";
  const auto rows = find_documents(config.path);
  const auto files = rows.empty() ? find_data_files(config.path, ".txt") : rows;
  uint64_t bytes = 0;
  for (const std::string& file : files) {
    std::error_code error;
    const auto size = fs::file_size(file, error);
    if (!error) bytes += size;  // open_data() reports what is wrong with it
  }
  if (bytes < kLarge) return "";
  std::error_code ignored;
  return fmt::format(
      "Text: {:.0f} MB are encoded now and at each start, and each rank {}; to do it once: trainer "
      "tokenize --tokenizer {} --input {}{}{} --output tokens, then data_config.path=tokens",
      static_cast<double>(bytes) / 1e6,
      rows.empty() ? "holds them, 4 bytes a token"
                   : "writes them to a temporary file, 2 or 4 bytes a token",
      config.tokenizer.empty() ? "char" : config.tokenizer, config.path,
      fs::is_directory(config.path, ignored) ? "/*" + lower_extension(files.front()) : "",
      rows.empty() || config.text_column == DataConfig().text_column
          ? ""
          : " --text_column " + config.text_column);
}

DataSource open_data(const DataConfig& config, std::unique_ptr<Tokenizer> of_snapshot) {
  if (holds_tokens(config)) return open_shards(config, std::move(of_snapshot));
  if (const auto files = find_documents(config.path); !files.empty())
    return open_documents(config, files, std::move(of_snapshot));
  return open_text(config, std::move(of_snapshot));
}

}  // namespace ddp::train
