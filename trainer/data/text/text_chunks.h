// Reads text files in pieces that can be tokenized separately.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/left_out.h"
#include "trainer/data/text/documents.h"

namespace ddp::train {

/// Holds one piece of about a megabyte at a time, more only if the text cannot be cut there. Skips
/// a leading byte order mark. Single-threaded.
class TextChunks {
 public:
  /// The largest length at which a text may be cut, 0 for none: Tokenizer::safe_prefix().
  using SafePrefix = std::function<std::size_t(std::string_view)>;

  /// Throws UserError if the file cannot be read.
  TextChunks(std::string path, SafePrefix safe_prefix);

  struct Chunk {
    std::string text;
    uint64_t offset = 0;  ///< Position of its first byte in the file.
  };
  /// Returns false at the end of the file. Throws RunError if reading fails.
  bool next(Chunk& chunk);

  const std::string& path() const { return path_; }

 private:
  bool read_more(std::size_t bytes);
  void leave_out_byte_order_mark();

  std::string path_;
  SafePrefix safe_prefix_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::string rest_;  ///< Read but not returned yet.
  uint64_t offset_ = 0;
};

/// A piece of one of the files: of a text, or documents of a file of rows. A file ends with a piece
/// without either.
struct TextPiece {
  std::size_t file = 0;
  bool ends_file = false;
  bool ends_all = false;
  TextChunks::Chunk chunk;
  std::vector<std::string> documents;
  std::vector<std::string> places;  ///< Places of the documents: "FILE:LINE".
};

/// How files of rows are read.
struct RowsOfFiles {
  TableColumns columns;
  LeftOut& left_out;
};

/// Returns the pieces of all files in order. Must not be called by two threads at a time.
class TextPieces {
 public:
  TextPieces(const std::vector<std::string>& paths, TextChunks::SafePrefix safe_prefix,
             const RowsOfFiles& rows);
  TextPiece next();

 private:
  bool next_documents(TextPiece& piece);

  const std::vector<std::string>& paths_;
  TextChunks::SafePrefix safe_prefix_;
  const RowsOfFiles& rows_;
  std::size_t file_ = 0;
  std::unique_ptr<TextChunks> chunks_;
  std::unique_ptr<Documents> documents_;
};

}  // namespace ddp::train
