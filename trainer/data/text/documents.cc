#include "trainer/data/text/documents.h"

#include <fmt/format.h>

#include <utility>

#include "trainer/data/tokens/token_shards.h"

namespace ddp::train {

bool holds_documents(const std::string& file) { return is_row_file(file) || is_arrow_table(file); }

std::vector<std::string> find_documents(const std::string& path) {
  if (path.empty()) return {};
  // No .json: a folder has such files for a tokenizer or a model.
  for (const char* extension :
       {".parquet", ".arrow", ".feather", ".txt", ".jsonl", ".ndjson", ".csv", ".tsv"}) {
    auto files = find_data_files(path, extension);
    if (files.empty()) continue;
    if (holds_documents(files.front())) return files;
    return {};
  }
  return {};
}

Documents::Documents(std::vector<std::string> files, TableColumns columns, LeftOut& left_out)
    : files_(std::move(files)), columns_(std::move(columns)), left_out_(left_out) {}

void Documents::open_next() {
  const std::string& file = files_[file_++];
  if (!holds_documents(file))
    throw UserError(file + ": is not a file of rows, unlike the files before it");
  if (is_arrow_table(file)) {
    row_.line = 0;
    column_texts_ = open_column_texts(file, columns_.text);
  } else {
    rows_ = std::make_unique<TableReader>(file, columns_);
  }
}

bool Documents::next_row(std::string& document) {
  try {
    if (!rows_->next(row_)) return false;
    document = std::move(row_.text);
  } catch (const BrokenFileError&) {
    throw;
  } catch (const UserError& error) {
    document.clear();
    left_out_.found(error.what());
  }
  return true;
}

bool Documents::next_of_arrow(std::string& document) {
  while (at_ == batch_.size()) {
    at_ = 0;
    if (!column_texts_->next(batch_)) return false;
  }
  document = std::move(batch_[at_++]);
  ++row_.line;
  return true;
}

bool Documents::next(std::string& document) {
  while (true) {
    while (rows_ && next_row(document))
      if (!document.empty()) return true;
    rows_.reset();
    while (column_texts_ && next_of_arrow(document))
      if (!document.empty()) return true;
    column_texts_.reset();
    batch_.clear();
    if (file_ == files_.size()) return false;
    open_next();
  }
}

std::string Documents::place() const { return fmt::format("{}:{}", files_[file_ - 1], row_.line); }

std::vector<int32_t> encode_document(const Tokenizer& tokenizer, const std::string& document) {
  const auto end = tokenizer.end_of_text();
  std::vector<int32_t> tokens = tokenizer.encode(end ? document : document + "\n");
  if (end) tokens.push_back(*end);
  return tokens;
}

}  // namespace ddp::train
