#include "trainer/app/text_files.h"

#include <filesystem>
#include <utility>

#include "trainer/runtime/error.h"

namespace ddp::train {

TextPieces::TextPieces(const std::vector<std::string>& paths, TextChunks::SafePrefix safe_prefix)
    : paths_(paths), safe_prefix_(std::move(safe_prefix)) {}

TextPiece TextPieces::next() {
  TextPiece piece;
  piece.file = file_;
  piece.ends_all = file_ == paths_.size();
  if (piece.ends_all) return piece;
  if (!chunks_) chunks_ = std::make_unique<TextChunks>(paths_[file_], safe_prefix_);
  piece.ends_file = !chunks_->next(piece.chunk);
  if (piece.ends_file) {
    chunks_.reset();
    ++file_;
  }
  return piece;
}

uint64_t size_of_files(const std::vector<std::string>& paths) {
  uint64_t bytes = 0;
  for (const std::string& path : paths) {
    std::error_code error;
    const uint64_t size = std::filesystem::file_size(path, error);
    if (error) throw UserError("cannot read " + path + ": " + error.message());
    bytes += size;
  }
  return bytes;
}

}  // namespace ddp::train
