// `trainer tokenize`
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <set>
#include <thread>

#include "launcher/worker_contract.h"
#include "trainer/app/modes.h"
#include "trainer/app/progress_line.h"
#include "trainer/data/text/text_chunks.h"
#include "trainer/data/tokens/shard_writer.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"
#include "trainer/runtime/process/prefetcher.h"
#include "trainer/runtime/process/stop_signal.h"
#include "trainer/runtime/utf8.h"
#include "trainer/tokenizer/bpe/bpe_tokenizer.h"
#include "trainer/tokenizer/bpe/bpe_trainer.h"
#include "trainer/tokenizer/byte_tokenizer.h"
#include "trainer/tokenizer/char_tokenizer.h"
#include "trainer/tokenizer/tokenizer_folder.h"
#include "trainer/tokenizer/word_splitter.h"
#include "trainer/tokenizer/wordpiece/wordpiece_tokenizer.h"
#include "trainer/tokenizer/wordpiece/wordpiece_trainer.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

int64_t thread_count(const TokenizeArgs& options) {
  constexpr int64_t kMost = 1024;
  if (options.threads > 0) return std::min(options.threads, kMost);
  return std::max<int64_t>(1, std::thread::hardware_concurrency());
}

/// What a thread has made of a piece.
template <typename Result>
struct Made {
  TextPiece piece;  // without its text
  uint64_t bytes = 0;
  Result result;
};

uint64_t bytes_of(const TextPiece& piece) {
  uint64_t bytes = piece.chunk.text.size();
  for (const std::string& text : piece.documents) bytes += text.size();
  return bytes;
}

/// Calls `use` with the text of a piece, or with each of its documents.
template <typename Use>
void for_each_text(const TextPiece& piece, const Use& use) {
  if (!piece.chunk.text.empty()) use(piece.chunk.text);
  for (const std::string& text : piece.documents) use(text);
}

LeftOut rows_left_out(const TokenizeArgs& options) {
  return LeftOut(options.skip_bad_rows ? OnBadSample::kSkip : OnBadSample::kStop,
                 "--on_bad_sample skip");
}

/// Throws UserError if one of them is not a readable file.
uint64_t size_of_files(const std::vector<std::string>& paths) {
  uint64_t bytes = 0;
  for (const std::string& path : paths) {
    std::error_code error;
    const uint64_t size = fs::file_size(path, error);
    if (error) throw UserError("cannot read " + path + ": " + error.message());
    bytes += size;
  }
  return bytes;
}

/// `make` of every piece on several threads, `use` of the results in order.
template <typename Result>
void for_each_piece(const TokenizeArgs& options, const std::string& what, LeftOut& left_out,
                    const TextChunks::SafePrefix& safe_prefix,
                    const std::function<Result(const TextPiece&)>& make,
                    const std::function<void(Made<Result>&)>& use) {
  ProgressLine progress(what, size_of_files(options.inputs));
  const RowsOfFiles rows{
      {options.text_column.value_or(DataConfig().text_column), "", "--text_column"}, left_out};
  TextPieces pieces(options.inputs, safe_prefix, rows);
  const int64_t threads = thread_count(options);
  Prefetcher<TextPiece, Made<Result>> results(
      threads, 2 * threads, [&] { return pieces.next(); },
      [&](const TextPiece& piece) -> Made<Result> {
        return {{piece.file, piece.ends_file, piece.ends_all, {}, {}, {}},
                bytes_of(piece),
                piece.ends_all ? Result() : make(piece)};
      });
  for (Made<Result> made = results.next(); !made.piece.ends_all; made = results.next()) {
    use(made);
    progress.add(made.bytes);
  }
}

/// Errors of an encoder, with the place in the files.
[[noreturn]] void fail_in_file(const TokenizeArgs& options, const TextPiece& piece,
                               const UserError& error) {
  throw UserError(fmt::format("{}: in the text from byte {} on: {}", options.inputs[piece.file],
                              piece.chunk.offset, error.what()));
}

std::set<uint32_t> characters_of(const TokenizeArgs& options, const TextPiece& piece) {
  std::set<uint32_t> found;
  for_each_text(piece, [&](const std::string& text) {
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint point = decode_utf8(text, at);
      if (point.bytes == 0) {
        throw UserError(fmt::format("{}: {}, or write --tokenizer byte, which takes any bytes",
                                    options.inputs[piece.file],
                                    not_utf8(text, at, piece.chunk.offset)));
      }
      found.insert(point.value);
      at += point.bytes;
    }
  });
  if (!piece.documents.empty()) found.insert('\n');  // it ends a document
  return found;
}

std::unique_ptr<Tokenizer> make_char_tokenizer(const TokenizeArgs& options) {
  std::set<uint32_t> all;
  LeftOut counted_later = rows_left_out(options);
  for_each_piece<std::set<uint32_t>>(
      options, "looking for characters", counted_later, whole_characters,
      [&](const TextPiece& piece) { return characters_of(options, piece); },
      [&](Made<std::set<uint32_t>>& made) { all.merge(made.result); });
  std::vector<std::string> characters;
  for (const uint32_t character : all) characters.push_back(encode_utf8(character));
  return std::make_unique<CharTokenizer>(std::move(characters));
}

std::size_t cut_between_words(std::string_view text) {
  for (std::size_t at = text.size(); at > 1; --at) {
    if (always_splits(text, at - 1)) return at - 1;
  }
  return 0;
}

/// Adds the words of a text, which is of that piece.
using AddWords = std::function<void(const TextPiece&, const std::string&, WordCounts&)>;

WordCounts count_words(const TokenizeArgs& options, const AddWords& add) {
  WordCounts words;
  LeftOut counted_later = rows_left_out(options);
  for_each_piece<WordCounts>(
      options, "counting words", counted_later, cut_between_words,
      [&add](const TextPiece& piece) {
        WordCounts counts;
        for_each_text(piece, [&](const std::string& text) { add(piece, text, counts); });
        return counts;
      },
      [&](Made<WordCounts>& made) { words.add(made.result); });
  return words;
}

void warn_when_smaller(const TokenizeArgs& options, std::size_t size, const WordCounts& words) {
  if (static_cast<int64_t>(size) >= options.vocab_size) return;
  fmt::print(stderr,
             "warning: the vocabulary has {} tokens, not {}: the {} different words of the input "
             "hold no further pair\n",
             size, options.vocab_size, words.distinct());
}

std::unique_ptr<Tokenizer> train_bpe_tokenizer(const TokenizeArgs& options) {
  const WordCounts words = count_words(options, [](const TextPiece&, const std::string& text,
                                                   WordCounts& counts) { counts.add_text(text); });
  BpeSpec spec = train_bpe(words, options.vocab_size);
  warn_when_smaller(options, spec.vocabulary.size(), words);
  return std::make_unique<BpeTokenizer>(std::move(spec));
}

std::unique_ptr<Tokenizer> train_wordpiece_tokenizer(const TokenizeArgs& options) {
  const WordCounts words = count_words(
      options, [&](const TextPiece& piece, const std::string& text, WordCounts& counts) {
        try {
          for_each_bert_word(text, BertWordOptions{},
                             [&counts](std::string_view word) { counts.add_word(word); });
        } catch (const UserError& error) {
          fail_in_file(options, piece, error);
        }
      });
  WordpieceSpec spec = train_wordpiece(words, options.vocab_size);
  warn_when_smaller(options, spec.vocabulary.size(), words);
  return std::make_unique<WordpieceTokenizer>(std::move(spec));
}

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizeArgs& options) {
  if (options.tokenizer == "char") return make_char_tokenizer(options);
  if (options.tokenizer == "byte") return std::make_unique<ByteTokenizer>();
  if (options.tokenizer == "bpe") return train_bpe_tokenizer(options);
  if (options.tokenizer == "wordpiece") return train_wordpiece_tokenizer(options);
  return load_tokenizer(options.tokenizer);
}

bool is_own_file(const fs::path& path) {
  const std::string name = path.filename().string();
  return name == "tokenizer.json" || (name.starts_with("tokens_") && name.ends_with(".bin"));
}

/// Files of tokens that are there already: a folder of tokens is read as one set.
std::vector<fs::path> earlier_files(const std::string& folder) {
  std::vector<fs::path> earlier;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path& path = entry.path();
    if (is_own_file(path) || path.extension() == ".bin") earlier.push_back(path);
  }
  return earlier;
}

/// Throws UserError when it cannot be the place of one set of tokens.
void check_folder(const TokenizeArgs& options) {
  std::error_code error;
  fs::create_directories(options.output, error);
  if (error || !fs::is_directory(options.output, error)) {
    throw UserError(fmt::format("--output: cannot create the folder {}: {}", options.output,
                                error ? error.message() : "there is a file of that name"));
  }
  for (const fs::path& path : earlier_files(options.output)) {
    if (options.overwrite && is_own_file(path)) continue;
    throw UserError(fmt::format("--output: {} already exists; give another folder{}", path.string(),
                                is_own_file(path) ? ", or --overwrite" : ""));
  }
  if (options.overwrite && fs::equivalent(options.tokenizer, options.output, error))
    throw UserError("--output: is the tokenizer's own folder; give another one");
}

/// What a process that was killed has left of a file.
bool is_temporary(const fs::path& path) {
  const std::string name = path.filename().string();
  const auto at = name.find(".tmp.");
  return at != std::string::npos && is_own_file(path.parent_path() / name.substr(0, at));
}

/// The sign that the folder is whole, tokenizer.json, goes first.
void clear_folder(const TokenizeArgs& options) {
  fs::remove(fs::path(options.output) / "tokenizer.json");
  std::vector<fs::path> useless = earlier_files(options.output);
  for (const auto& entry : fs::directory_iterator(options.output)) {
    if (is_temporary(entry.path())) useless.push_back(entry.path());
  }
  for (const fs::path& path : useless) fs::remove(path);
}

void check_end_of_text(const TokenizeArgs& options, const Tokenizer& tokenizer) {
  if (!options.append_end_of_text || tokenizer.end_of_text()) return;
  throw UserError(
      fmt::format("--append_end_of_text: the tokenizer {} has no end-of-text token; "
                  "leave it out, or use byte or bpe",
                  options.tokenizer));
}

/// By a signal: what is written of a file goes.
struct Interrupted : std::exception {};

/// The tokens of a piece, and its documents that cannot be encoded: "FILE:LINE: reason".
struct EncodedPiece {
  std::vector<int32_t> tokens;
  std::vector<std::string> unusable;
};

EncodedPiece encode_piece(const TokenizeArgs& options, const Tokenizer& tokenizer,
                          const TextPiece& piece) {
  EncodedPiece result;
  if (piece.documents.empty()) {
    try {
      result.tokens = tokenizer.encode(piece.chunk.text);
    } catch (const UserError& error) {
      fail_in_file(options, piece, error);
    }
  }
  for (std::size_t i = 0; i < piece.documents.size(); ++i) {
    try {
      const auto tokens = encode_document(tokenizer, piece.documents[i]);
      result.tokens.insert(result.tokens.end(), tokens.begin(), tokens.end());
    } catch (const UserError& error) {
      result.unusable.push_back(fmt::format("{}: {}", piece.places[i], error.what()));
    }
  }
  return result;
}

/// Returns the bytes of text that were encoded.
uint64_t encode_files(const TokenizeArgs& options, const Tokenizer& tokenizer, LeftOut& left_out,
                      ShardWriter& writer) {
  uint64_t bytes = 0;
  for_each_piece<EncodedPiece>(
      options, "encoding", left_out,
      [&tokenizer](std::string_view text) { return tokenizer.safe_prefix(text); },
      [&](const TextPiece& piece) { return encode_piece(options, tokenizer, piece); },
      [&](Made<EncodedPiece>& made) {
        if (StopSignal::pending() != 0) throw Interrupted();
        for (const std::string& what : made.result.unusable) left_out.found(what);
        bytes += made.bytes;
        writer.write(made.result.tokens);
        const bool of_rows = holds_documents(options.inputs[made.piece.file]);
        if (made.piece.ends_file && options.append_end_of_text && !of_rows)
          writer.write(std::vector<int32_t>{*tokenizer.end_of_text()});
      });
  return bytes;
}

void print_summary(const TokenizeArgs& options, const Tokenizer& tokenizer,
                   const ShardWriter& writer, uint64_t encoded, double seconds) {
  const auto bytes = static_cast<double>(encoded);
  const auto tokens = static_cast<double>(writer.tokens());
  fmt::print(
      "{}: {} tokens in {} file{}, {} vocabulary of {}, {:.2f} bytes a token; {:.1f} MB encoded in "
      "{:.2f} s, {:.2f} million tokens/s on {} thread{}\n",
      options.output, writer.tokens(), writer.shards(), writer.shards() == 1 ? "" : "s",
      tokenizer.kind(), tokenizer.size(), bytes / std::max(tokens, 1.0), bytes / 1e6, seconds,
      tokens / 1e6 / std::max(seconds, 1e-9), thread_count(options),
      thread_count(options) == 1 ? "" : "s");
}

/// Returns the signal that ended it early, or 0.
int write_shards(const TokenizeArgs& options, const Tokenizer& tokenizer) {
  const StopSignal stop_signal;
  ShardWriter writer(
      {options.output, options.shard_tokens, tokenizer.size(), tokenizer_fingerprint(tokenizer)});
  const auto start = std::chrono::steady_clock::now();
  LeftOut left_out = rows_left_out(options);
  uint64_t bytes = 0;
  try {
    bytes = encode_files(options, tokenizer, left_out, writer);
  } catch (const Interrupted&) {
    return StopSignal::pending();
  }
  writer.finish();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  // Last: the folder is whole when it is there.
  publish_text((fs::path(options.output) / "tokenizer.json").string(), tokenizer.state());
  print_summary(options, tokenizer, writer, bytes, seconds.count());
  if (left_out.count() > 0) fmt::print(stderr, "warning: {}\n", left_out.text());
  return 0;
}

}  // namespace

int run_tokenize(const TrainerArgs& args) {
  const TokenizeArgs& options = args.tokenize;
  const bool rows = std::any_of(options.inputs.begin(), options.inputs.end(), holds_documents);
  if (!rows && (options.text_column || options.skip_bad_rows))
    throw UserError(fmt::format("--{}: has no effect, as no input has rows; remove it",
                                options.text_column ? "text_column" : "on_bad_sample"));
  if (size_of_files(options.inputs) == 0)
    throw UserError(options.inputs.front() + ": holds no text");
  check_folder(options);
  const auto tokenizer = make_tokenizer(options);
  check_end_of_text(options, *tokenizer);
  clear_folder(options);
  const int signal = write_shards(options, *tokenizer);
  if (signal == 0) return launch::kExitDone;
  fmt::print(stderr,
             "interrupted: {} is not complete; the same command with --overwrite starts over\n",
             options.output);
  return launch::kExitSignalBase + signal;
}

}  // namespace ddp::train
