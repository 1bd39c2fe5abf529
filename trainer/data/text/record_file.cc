#include "trainer/data/text/record_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "trainer/runtime/files/lower_extension.h"
#include "trainer/runtime/utf8.h"

namespace ddp::train {
namespace {

constexpr int kEnd = std::char_traits<char>::eof();

bool is_blank_character(int c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/// What other formats begin with, and how to have them read.
void refuse_other_content(const std::string& path, std::string_view start) {
  if (start.starts_with("PAR1")) throw UserError(path + ": is a Parquet file; name it .parquet");
  for (const auto& [magic, tool] : {std::pair{"\x1F\x8B", "gzip -dk"},
                                    {"\x28\xB5\x2F\xFD", "zstd -dk"},
                                    {"PK\x03\x04", "unzip"}}) {
    if (start.starts_with(magic))
      throw UserError(fmt::format("{0}: is compressed; unpack it: {1} {0}", path, tool));
  }
}

/// Python's json.dumps writes NaN and Infinity where JSON has no number: null.
void replace_nan(std::string& json) {
  if (json.find("NaN") == std::string::npos && json.find("Infinity") == std::string::npos) return;
  bool quoted = false;
  for (std::size_t at = 0; at < json.size(); ++at) {
    if (quoted && json[at] == '\\') {
      ++at;
    } else if (json[at] == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"})
        if (json.compare(at, word.size(), word) == 0) json.replace(at, word.size(), "null");
    }
  }
}

}  // namespace

RecordFile::RecordFile(std::string path) : path_(std::move(path)), bytes_(file_.rdbuf()) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path_, error) && !error)
    throw UserError(path_ + ": is not a regular file; name a file of rows");
  if (is_arrow_table(path_)) {
    table_ = open_table_rows(path_);
    return;
  }
  file_.open(path_, std::ios::binary);
  if (!file_) throw UserError(fmt::format("{}: cannot read: {}", path_, std::strerror(errno)));
  const std::string end = lower_extension(path_);
  if (end == ".csv") separator_ = ',';
  if (end == ".tsv") separator_ = '\t';
  try {
    look_at_start();
  } catch (const std::ios_base::failure&) {
    cannot_read();
  }
}

void RecordFile::look_at_start() {
  std::string start(std::size_t{1} << 16U, '\0');
  start.resize(static_cast<std::size_t>(
      bytes_->sgetn(start.data(), static_cast<std::streamsize>(start.size()))));
  refuse_other_content(path_, start);
  const bool has_mark = start.starts_with(kByteOrderMark);
  // As old programs end lines.
  if (start.find('\n') == std::string::npos && start.find('\r') != std::string::npos)
    line_end_ = '\r';
  const auto first = start.find_first_not_of(" \t\r\n", has_mark ? kByteOrderMark.size() : 0);
  if (is_json() && first != std::string::npos && start[first] == '[') {
    const auto second = start.find_first_not_of(" \t\r\n", first + 1);
    const bool is_empty = second != std::string::npos && start[second] == ']' &&
                          start.find_first_not_of(" \t\r\n", second + 1) == std::string::npos;
    is_array_ = is_empty || (second != std::string::npos && start[second] == '{');
  }
  offset_ = has_mark ? kByteOrderMark.size() : 0;
  bytes_->pubseekpos(static_cast<std::streamoff>(offset_), std::ios::in);
}

std::string RecordFile::at(int64_t line, const std::string& what) const {
  return fmt::format("{}:{}: {}", path_, line, what);
}

void RecordFile::break_off(int64_t line, const std::string& what) {
  done_ = true;
  throw BrokenFileError(at(line, what));
}

void RecordFile::cannot_read() const {
  throw RunError(at(line_, fmt::format("cannot read: {}", std::strerror(errno))));
}

int RecordFile::take() {
  const int c = bytes_->sbumpc();
  if (c == kEnd) return c;
  ++offset_;
  if (c == line_end_) ++line_;
  return c;
}

void RecordFile::append(Record& record, int c) {
  if (record.text.size() == kMostRowBytes) {
    break_off(record.line,
              "starts a row larger than 64 MB; close its quote or its brackets, or split it");
  }
  record.text += static_cast<char>(c);
}

bool RecordFile::read_row(Record& record) {
  while (row_ == rows_.size()) {
    row_ = 0;
    try {
      if (!table_->next(rows_)) return false;
    } catch (const UserError& error) {
      done_ = true;
      throw BrokenFileError(error.what());
    }
  }
  record.text = std::move(rows_[row_++]);
  ++line_;
  return true;
}

bool RecordFile::read_line(Record& record) {
  int c = take();
  if (c == kEnd) return false;
  for (; c != kEnd && c != line_end_; c = take()) append(record, c);
  return true;
}

// A quote opens a field at its beginning only.
bool RecordFile::read_values(Record& record) {
  enum { kStart, kPlain, kQuoted, kQuoteInside } state = kStart;
  int c = take();
  if (c == kEnd) return false;
  for (; c != kEnd && (c != line_end_ || state == kQuoted); c = take()) {
    append(record, c);
    if (c == '"' && state != kPlain) {
      state = state == kQuoted ? kQuoteInside : kQuoted;
    } else if (state != kQuoted) {
      state = c == separator_ ? kStart : kPlain;
    }
  }
  return true;
}

int RecordFile::skip_blank() {
  while (is_blank_character(bytes_->sgetc())) take();
  return bytes_->sgetc();
}

bool RecordFile::read_element(Record& record) {
  skip_blank();
  if (!in_array_) take();  // the bracket
  int next = skip_blank();
  if (next == ']' || (in_array_ && next == ',')) take();
  if (next == ']') {
    if (skip_blank() != kEnd) break_off(line_, "text follows the end of the array; remove it");
    return false;
  }
  if (in_array_ && next != ',')
    break_off(line_, next == kEnd ? "the array is cut short; complete the file"
                                  : "a comma is missing between two elements; add it");
  in_array_ = true;
  next = skip_blank();
  if (next == ']') break_off(line_, "a comma precedes the closing bracket; remove it");
  record.line = line_;
  record_offset_ = offset_;
  int depth = 0;
  bool quoted = false;
  for (int c = take(); c != kEnd; c = take()) {
    append(record, c);
    if (quoted && c == '\\') {
      append(record, take());
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
    }
    if (quoted || depth > 0) continue;
    next = skip_blank();
    const bool whole = c == '}' || c == ']' || c == '"';  // whatever follows, even no comma
    if (whole || next == ',' || next == ']' || next == kEnd) return true;
  }
  break_off(record.line, "the array is cut short; complete the file");
}

bool RecordFile::read(Record& record) try {
  record.text.clear();
  record.line = line_;
  record_offset_ = offset_;
  if (table_) return read_row(record);
  if (is_array_) return read_element(record);
  return is_json() ? read_line(record) : read_values(record);
} catch (const std::ios_base::failure&) {
  cannot_read();
}

bool RecordFile::next(Record& record) {
  while (!done_) {
    done_ = !read(record);
    if (done_) return false;
    if (record.text.ends_with('\r')) record.text.pop_back();
    if (is_json() && record.text.find_first_not_of(" \t") == std::string::npos) continue;
    const std::size_t bad = first_bad_byte(record.text);
    if (bad == std::string::npos) {
      if (is_json()) replace_nan(record.text);
      return true;
    }
    throw UserError(at(record.line, not_utf8(record.text, bad, record_offset_)));
  }
  return false;
}

}  // namespace ddp::train
