// Writes tokens into a folder of shards, each published by rename.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/tokens/shard_format.h"
#include "trainer/runtime/files/atomic_file.h"

namespace ddp::train {

/// tokens_000000.bin, tokens_000001.bin, ... Destruction without finish() drops the current
/// shard.
class ShardWriter {
 public:
  struct Options {
    std::string folder;
    int64_t tokens_per_shard = 0;
    int64_t vocabulary_size = 0;
    std::string tokenizer_fingerprint;
    bool durable = true;  ///< As AtomicFile's.
  };
  explicit ShardWriter(Options options);

  /// Throws RunError if writing to the disk fails.
  void write(std::span<const int32_t> tokens);
  /// Publishes the last shard.
  void finish();

  int64_t tokens() const { return all_tokens_; }
  int shards() const { return shards_; }

 private:
  void open_next();
  void append(std::span<const int32_t> tokens);
  void publish();

  Options options_;
  ShardLayout layout_;  // of the current shard
  std::unique_ptr<AtomicFile> file_;
  std::vector<char> buffer_;
  int64_t all_tokens_ = 0;
  int shards_ = 0;
};

}  // namespace ddp::train
