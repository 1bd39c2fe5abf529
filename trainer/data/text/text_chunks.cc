#include "trainer/data/text/text_chunks.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "trainer/runtime/error.h"
#include "trainer/runtime/utf8.h"

namespace ddp::train {

TextChunks::TextChunks(std::string path, SafePrefix safe_prefix)
    : path_(std::move(path)),
      safe_prefix_(std::move(safe_prefix)),
      file_(std::fopen(path_.c_str(), "rb"), &std::fclose) {
  struct stat status = {};
  if (!file_ || ::fstat(::fileno(file_.get()), &status) != 0)
    throw UserError("cannot read " + path_ + ": " + std::strerror(errno));
  if (S_ISDIR(status.st_mode)) throw UserError(path_ + ": is a folder; name the files in it");
  std::setvbuf(file_.get(), nullptr, _IONBF, 0);
}

bool TextChunks::read_more(std::size_t bytes) {
  const std::size_t before = rest_.size();
  rest_.resize(before + bytes);
  const std::size_t n = std::fread(rest_.data() + before, 1, bytes, file_.get());
  rest_.resize(before + n);
  if (std::ferror(file_.get()) != 0)
    throw RunError("cannot read " + path_ + ": " + std::strerror(errno));
  return n == bytes;
}

void TextChunks::leave_out_byte_order_mark() {
  read_more(kByteOrderMark.size());
  if (rest_ != kByteOrderMark) return;
  offset_ = rest_.size();
  rest_.clear();
}

bool TextChunks::next(Chunk& chunk) {
  constexpr std::size_t kBytes = std::size_t{1} << 20U;
  if (offset_ == 0 && rest_.empty()) leave_out_byte_order_mark();
  std::size_t cut = 0;
  bool more = true;
  // Where there is no place to cut, twice as much is looked at: the time stays linear.
  for (std::size_t wanted = kBytes; cut == 0 && more; wanted = 2 * rest_.size()) {
    if (rest_.size() < wanted) more = read_more(wanted - rest_.size());
    cut = more ? safe_prefix_(rest_) : rest_.size();
  }
  if (cut == 0) return false;
  chunk = {rest_.substr(0, cut), offset_};
  offset_ += cut;
  rest_.erase(0, cut);
  return true;
}

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

}  // namespace ddp::train
