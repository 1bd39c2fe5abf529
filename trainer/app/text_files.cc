#include "trainer/app/text_files.h"

#include <filesystem>
#include <utility>

#include "trainer/runtime/error.h"

namespace ddp::train {

TextPieces::TextPieces(const std::vector<std::string>& paths, TextChunks::SafePrefix safe_prefix,
                       const RowsOfFiles& rows)
    : paths_(paths), safe_prefix_(std::move(safe_prefix)), rows_(rows) {}

bool TextPieces::next_documents(TextPiece& piece) {
  constexpr std::size_t kBytes = std::size_t{1} << 20U;
  std::size_t bytes = 0;
  for (std::string text; bytes < kBytes && documents_->next(text);) {
    bytes += text.size();
    piece.documents.push_back(std::move(text));
    piece.places.push_back(documents_->place());
  }
  return !piece.documents.empty();
}

TextPiece TextPieces::next() {
  TextPiece piece;
  piece.file = file_;
  piece.ends_all = file_ == paths_.size();
  if (piece.ends_all) return piece;
  const std::string& path = paths_[file_];
  if (!chunks_ && !documents_) {
    if (holds_documents(path)) {
      documents_ = std::make_unique<Documents>(std::vector{path}, rows_.columns, rows_.left_out);
    } else {
      chunks_ = std::make_unique<TextChunks>(path, safe_prefix_);
    }
  }
  piece.ends_file = documents_ ? !next_documents(piece) : !chunks_->next(piece.chunk);
  if (piece.ends_file) {
    chunks_.reset();
    documents_.reset();
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
