// Reads a text file in pieces that can be tokenized separately.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

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

}  // namespace ddp::train
