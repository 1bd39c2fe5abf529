#include "trainer/data/tokens/shard_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

constexpr std::string_view kMagic = "ddptoken";
constexpr uint32_t kByteOrder = 0x01020304;
constexpr uint32_t kVersion = 1;
constexpr std::size_t kFingerprintBytes = 64;

struct Header {
  char magic[8];
  uint32_t byte_order;
  uint32_t version;
  uint32_t token_bytes;
  uint32_t vocabulary_size;
  uint64_t tokens;
  char fingerprint[kFingerprintBytes];
  char zeros[32];
};
static_assert(sizeof(Header) == kShardHeaderBytes);

constexpr std::size_t kLlmcHeaderBytes = 1024;
struct LlmcKind {
  uint32_t magic;
  uint32_t version;
  std::size_t token_bytes;
};
constexpr LlmcKind kLlmcKinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

/// Complaints about one file, each one line.
class ShardCheck {
 public:
  ShardCheck(const std::string& path, uint64_t file_size) : path_(path), file_size_(file_size) {}

  [[noreturn]] void fail(const std::string& what) const { throw UserError(path_ + ": " + what); }

  [[noreturn]] void fail_byte_order() const {
    fail("was written on a machine of another byte order; write it again with trainer tokenize");
  }

  [[noreturn]] void fail_version(uint32_t version, uint32_t known) const {
    fail(
        fmt::format("has version {}, this trainer reads version {}; write it again with trainer "
                    "tokenize",
                    version, known));
  }

  void expect_size(uint64_t header, uint64_t tokens, uint64_t token_bytes) const {
    uint64_t expected = 0;
    const bool absurd = __builtin_mul_overflow(tokens, token_bytes, &expected) ||
                        __builtin_add_overflow(expected, header, &expected);
    if (!absurd && expected == file_size_) return;
    const std::string wanted = absurd ? "more" : std::to_string(expected);
    fail(
        fmt::format("{}: its header has {} tokens, that is {} bytes, but the file has {}; copy or "
                    "write it again",
                    absurd || file_size_ < expected ? "is cut short" : "is too long", tokens,
                    wanted, file_size_));
  }

 private:
  const std::string& path_;
  uint64_t file_size_;
};

ShardLayout read_own(const std::string& front, const ShardCheck& check) {
  if (front.size() < sizeof(Header)) check.fail("is truncated within its header; copy it again");
  Header header;
  std::memcpy(&header, front.data(), sizeof header);
  if (header.byte_order == __builtin_bswap32(kByteOrder)) check.fail_byte_order();
  if (header.byte_order != kByteOrder) check.fail("has a damaged header; write it again");
  if (header.version != kVersion) check.fail_version(header.version, kVersion);
  if ((header.token_bytes != 2 && header.token_bytes != 4) || header.vocabulary_size == 0)
    check.fail("has a damaged header; write it again");
  check.expect_size(sizeof header, header.tokens, header.token_bytes);
  return {sizeof header, header.token_bytes, static_cast<int64_t>(header.tokens),
          header.vocabulary_size, std::string(header.fingerprint, kFingerprintBytes)};
}

ShardLayout read_llmc(const std::string& front, const LlmcKind& kind, const ShardCheck& check) {
  uint32_t fields[3] = {};
  if (front.size() < kLlmcHeaderBytes) check.fail("is truncated within its header; copy it again");
  std::memcpy(fields, front.data(), sizeof fields);
  if (fields[1] != kind.version) check.fail_version(fields[1], kind.version);
  check.expect_size(kLlmcHeaderBytes, fields[2], kind.token_bytes);
  return {kLlmcHeaderBytes, kind.token_bytes, fields[2], 0, ""};
}

ShardLayout read_raw(uint64_t file_size, const ShardCheck& check) {
  constexpr uint64_t kTokenBytes = 2;
  if (file_size % kTokenBytes != 0)
    check.fail(
        fmt::format("has no known header, and {} bytes are not a whole number of 16-bit "
                    "tokens (nanoGPT's layout); is it cut short, or a text?",
                    file_size));
  return {0, kTokenBytes, static_cast<int64_t>(file_size / kTokenBytes), 0, ""};
}

}  // namespace

std::size_t token_bytes_for(int64_t vocabulary_size) { return vocabulary_size <= 65536 ? 2 : 4; }

std::string shard_header(const ShardLayout& layout) {
  Header header = {};
  std::memcpy(header.magic, kMagic.data(), sizeof header.magic);
  header.byte_order = kByteOrder;
  header.version = kVersion;
  header.token_bytes = static_cast<uint32_t>(layout.token_bytes);
  header.vocabulary_size = static_cast<uint32_t>(layout.vocabulary_size);
  header.tokens = static_cast<uint64_t>(layout.tokens);
  std::memcpy(header.fingerprint, layout.tokenizer_fingerprint.data(),
              std::min(layout.tokenizer_fingerprint.size(), kFingerprintBytes));
  return std::string(std::bit_cast<std::array<char, sizeof header>>(header).data(), sizeof header);
}

ShardLayout read_shard_layout(const std::string& front, uint64_t file_size,
                              const std::string& path) {
  const ShardCheck check(path, file_size);
  if (file_size == 0) check.fail("is empty");
  if (front.starts_with(kMagic)) return read_own(front, check);
  uint32_t magic = 0;
  std::memcpy(&magic, front.data(), std::min(front.size(), sizeof magic));
  for (const LlmcKind& kind : kLlmcKinds) {
    if (magic == kind.magic) return read_llmc(front, kind, check);
    if (magic == __builtin_bswap32(kind.magic)) check.fail_byte_order();
  }
  return read_raw(file_size, check);
}

}  // namespace ddp::train
