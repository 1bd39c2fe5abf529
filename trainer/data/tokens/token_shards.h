// Tokens in files as one sequence: the files are mapped, never read as a whole.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/tokens/shard_format.h"
#include "trainer/data/tokens/token_sequence.h"

namespace ddp::train {

/// One file of tokens. Opening takes the same time whatever its size.
class MappedShard {
 public:
  /// Throws UserError (see read_shard_layout) or RunError if it cannot be read.
  explicit MappedShard(const std::string& path);
  ~MappedShard();
  MappedShard(const MappedShard&) = delete;
  MappedShard& operator=(const MappedShard&) = delete;

  const std::string& path() const { return path_; }
  const ShardLayout& layout() const { return layout_; }
  /// Returns the largest of them. Throws RunError if the file has been truncated: reading past its
  /// end would end the process.
  int64_t copy(int64_t first, std::span<int64_t> out) const;
  /// Removes its pages from this process's memory; the system keeps them cached while it can.
  void release_pages() const;

 private:
  void check_still_whole() const;

  std::string path_;
  ShardLayout layout_;
  const std::byte* data_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  uint64_t device_ = 0;  // where the mapped file is, whatever has its name now
  uint64_t inode_ = 0;
};

/// The requirements on the files.
struct ShardUse {
  int64_t vocabulary_size = 0;        ///< Every token must be below it.
  std::string tokenizer_fingerprint;  ///< Shards of another tokenizer are rejected.
  std::string fingerprint = {};       ///< The tokens', if it is known.
};

/// The files one after the other.
class TokenShards : public TokenSequence {
 public:
  /// Throws UserError if a file is damaged, empty, or of another tokenizer or vocabulary.
  TokenShards(const std::vector<std::string>& paths, const ShardUse& use);

  int64_t size() const override { return starts_.back(); }
  /// Throws RunError with file and position of a token outside of the vocabulary.
  void copy(int64_t first, std::span<int64_t> out) const override;
  /// A hash of the number of tokens, the tokenizer, and 64 windows of 1,024 tokens: equal however
  /// the tokens are cut into files. ShardUse::fingerprint takes its place.
  const std::string& fingerprint() const override { return fingerprint_; }

  std::size_t files() const { return shards_.size(); }

 private:
  void check_use(const MappedShard& shard) const;
  void count_pages(std::size_t bytes) const;
  [[noreturn]] void fail_token(const MappedShard& shard, int64_t first,
                               std::span<const int64_t> tokens) const;
  std::string make_fingerprint() const;

  ShardUse use_;
  std::vector<std::unique_ptr<MappedShard>> shards_;
  std::vector<int64_t> starts_;  ///< First token of each shard, then the number of all tokens.
  std::string fingerprint_;
  mutable std::atomic<std::size_t> touched_bytes_{0};
};

/// Returns one file, the matches of a glob, or the files of a folder that end in `extension`;
/// sorted, possibly none.
std::vector<std::string> find_data_files(const std::string& path, std::string_view extension);

/// Returns the files of `path`: one file, a glob (sorted), or a folder's *.bin (sorted). Throws
/// UserError if there is none, or if a folder mixes files for training and validation.
std::vector<std::string> find_shards(const std::string& path);

}  // namespace ddp::train
