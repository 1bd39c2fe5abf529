// Files of tokens: their header, and the supported layouts of other programs.
//
// Layout of a shard of this trainer; all numbers in the byte order of the machine that wrote it:
//   offset bytes
//        0     8  "ddptoken"
//        8     4  byte order mark, 0x01020304
//       12     4  version, 1
//       16     4  bytes of one token, 2 or 4 (unsigned)
//       20     4  vocabulary size: every token is below it
//       24     8  number of tokens
//       32    64  fingerprint of the tokenizer: SHA-256, hexadecimal
//       96    32  zeros
//      128        the tokens
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ddp::train {

inline constexpr std::size_t kShardHeaderBytes = 128;

/// The facts about a file's tokens known without reading them.
struct ShardLayout {
  std::size_t header_bytes = 0;
  std::size_t token_bytes = 0;  ///< 2 or 4
  int64_t tokens = 0;
  int64_t vocabulary_size = 0;        ///< 0: unknown.
  std::string tokenizer_fingerprint;  ///< Empty: unknown.
};

/// Returns 2 if every token of the vocabulary fits into 16 bits, else 4.
std::size_t token_bytes_for(int64_t vocabulary_size);

/// The first kShardHeaderBytes of a file.
std::string shard_header(const ShardLayout& layout);

/// The format of a file of `file_size` bytes whose first 1,024 bytes, or all, are `front`.
/// Recognized by its first bytes: a shard of this trainer; llm.c's .bin (256 int32: magic 20240520,
/// version 1, number of tokens; or 20240801, version 7, of 32-bit tokens); else nanoGPT's, 16-bit
/// tokens without a header. Throws UserError that starts with `path` for a file of another byte
/// order or version, or a truncated or oversized file.
ShardLayout read_shard_layout(const std::string& front, uint64_t file_size,
                              const std::string& path);

inline constexpr std::size_t kLongestHeaderBytes = 1024;

}  // namespace ddp::train
