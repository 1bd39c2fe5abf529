// The input of `trainer tokenize`: several texts, in pieces for several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/data/left_out.h"
#include "trainer/data/text/documents.h"
#include "trainer/data/text/text_chunks.h"

namespace ddp::train {

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

/// Throws UserError if one of them is not a readable file.
uint64_t size_of_files(const std::vector<std::string>& paths);

}  // namespace ddp::train
