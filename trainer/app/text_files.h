// The input of `trainer tokenize`: several texts, in pieces for several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/data/text/text_chunks.h"

namespace ddp::train {

/// A piece of one of the files. A file ends with a piece without text.
struct TextPiece {
  std::size_t file = 0;
  bool ends_file = false;
  bool ends_all = false;
  TextChunks::Chunk chunk;
};

/// Returns the pieces of all files in order. Must not be called by two threads at a time.
class TextPieces {
 public:
  TextPieces(const std::vector<std::string>& paths, TextChunks::SafePrefix safe_prefix);
  TextPiece next();

 private:
  const std::vector<std::string>& paths_;
  TextChunks::SafePrefix safe_prefix_;
  std::size_t file_ = 0;
  std::unique_ptr<TextChunks> chunks_;
};

/// Throws UserError if one of them is not a readable file.
uint64_t size_of_files(const std::vector<std::string>& paths);

}  // namespace ddp::train
