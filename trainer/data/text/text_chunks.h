// A text file in pieces that may be encoded one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace ddp::train {

/// Holds one piece at a time, of about a megabyte: more only where the text has no place to cut it
/// at. A byte order mark in front is left out. For one thread.
class TextChunks {
 public:
  /// The largest length at which a text may be cut, 0 for none: Tokenizer::safe_prefix().
  using SafePrefix = std::function<std::size_t(std::string_view)>;

  /// Throws UserError when the file cannot be read.
  TextChunks(std::string path, SafePrefix safe_prefix);

  struct Chunk {
    std::string text;
    uint64_t offset = 0;  ///< Position of its first byte in the file.
  };
  /// False at the end of the file. Throws RunError when reading fails.
  bool next(Chunk& chunk);

  const std::string& path() const { return path_; }

 private:
  bool read_more(std::size_t bytes);
  void leave_out_byte_order_mark();

  std::string path_;
  SafePrefix safe_prefix_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::string rest_;  ///< Read, and not handed out.
  uint64_t offset_ = 0;
};

}  // namespace ddp::train
