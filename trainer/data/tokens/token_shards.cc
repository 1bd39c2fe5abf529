#include "trainer/data/tokens/token_shards.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/descriptor.h"
#include "trainer/runtime/files/sha256.h"

namespace ddp::train {
namespace {

/// Closed at the end of the scope: a mapping outlives its descriptor.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) fail(errno);
  }

  [[noreturn]] void fail(int error) const {
    throw UserError(fmt::format("cannot read {}: {}", path_, std::strerror(error)));
  }

  struct stat status() const {
    struct stat status = {};
    if (::fstat(fd_, &status) != 0) fail(errno);
    if (!S_ISREG(status.st_mode)) throw UserError(path_ + ": is not a file of tokens");
    return status;
  }

  const std::byte* map(std::size_t bytes) const {
    void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd_, 0);
    if (address == MAP_FAILED) fail(errno);
    ::madvise(address, bytes, MADV_RANDOM);  // no read-ahead: windows lie anywhere
    return static_cast<const std::byte*>(address);
  }

  std::string front(std::size_t most) const {
    std::string bytes(most, '\0');
    const ssize_t n = ::pread(fd_, bytes.data(), bytes.size(), 0);
    if (n < 0) fail(errno);
    bytes.resize(static_cast<std::size_t>(n));
    return bytes;
  }

 private:
  const std::string& path_;
  Descriptor fd_;
};

template <typename Token>
int64_t copy_tokens(const std::byte* from, std::span<int64_t> out) {
  Token largest = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    Token token;
    std::memcpy(&token, from + i * sizeof token, sizeof token);
    largest = std::max(largest, token);
    out[i] = token;
  }
  return largest;
}

}  // namespace

MappedShard::MappedShard(const std::string& path) : path_(path) {
  const OpenFile file(path);
  const struct stat status = file.status();
  const auto size = static_cast<std::size_t>(status.st_size);
  layout_ = read_shard_layout(file.front(kLongestHeaderBytes), size, path);
  data_ = file.map(size);
  mapped_bytes_ = size;
  device_ = status.st_dev;
  inode_ = status.st_ino;
}

MappedShard::~MappedShard() { ::munmap(const_cast<std::byte*>(data_), mapped_bytes_); }

// A file that was replaced or removed stays mapped; a truncated one has no pages after its end.
void MappedShard::check_still_whole() const {
  struct stat now = {};
  if (::stat(path_.c_str(), &now) != 0 || now.st_dev != device_ || now.st_ino != inode_) return;
  if (static_cast<std::size_t>(now.st_size) >= mapped_bytes_) return;
  throw RunError(fmt::format(
      "{}: was truncated from {} to {} bytes while being read; write it again and restart", path_,
      mapped_bytes_, now.st_size));
}

int64_t MappedShard::copy(int64_t first, std::span<int64_t> out) const {
  check_still_whole();
  const std::byte* from =
      data_ + layout_.header_bytes + static_cast<std::size_t>(first) * layout_.token_bytes;
  return layout_.token_bytes == 2 ? copy_tokens<uint16_t>(from, out)
                                  : copy_tokens<uint32_t>(from, out);
}

void MappedShard::release_pages() const {
  ::madvise(const_cast<std::byte*>(data_), mapped_bytes_, MADV_DONTNEED);
}

TokenShards::TokenShards(const std::vector<std::string>& paths, const ShardUse& use) : use_(use) {
  starts_.push_back(0);
  for (const std::string& path : paths) {
    shards_.push_back(std::make_unique<MappedShard>(path));
    check_use(*shards_.back());
    starts_.push_back(starts_.back() + shards_.back()->layout().tokens);
  }
  if (size() == 0)
    throw UserError((paths.empty() ? std::string("the data") : paths.front()) +
                    ": holds no tokens");
  fingerprint_ = use_.fingerprint.empty() ? make_fingerprint() : use_.fingerprint;
}

void TokenShards::check_use(const MappedShard& shard) const {
  const ShardLayout& layout = shard.layout();
  if (layout.vocabulary_size > use_.vocabulary_size) {
    throw UserError(fmt::format(
        "{}: its vocabulary has {} tokens, the tokenizer {}; give the tokenizer that it was "
        "written with as data_config.tokenizer",
        shard.path(), layout.vocabulary_size, use_.vocabulary_size));
  }
  const bool known = !layout.tokenizer_fingerprint.empty() && !use_.tokenizer_fingerprint.empty();
  if (known && layout.tokenizer_fingerprint != use_.tokenizer_fingerprint) {
    throw UserError(shard.path() +
                    ": was written with another tokenizer; set "
                    "data_config.tokenizer to it, or write it again with trainer tokenize");
  }
}

void TokenShards::copy(int64_t first, std::span<int64_t> out) const {
  auto shard = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), first) -
                                        starts_.begin() - 1);
  while (!out.empty()) {
    const int64_t left = starts_[shard + 1] - first;
    const auto part = out.first(std::min(out.size(), static_cast<std::size_t>(left)));
    const int64_t at = first - starts_[shard];
    if (shards_[shard]->copy(at, part) >= use_.vocabulary_size)
      fail_token(*shards_[shard], at, part);
    count_pages(part.size() * shards_[shard]->layout().token_bytes);
    first += static_cast<int64_t>(part.size());
    out = out.subspan(part.size());
    ++shard;
  }
}

void TokenShards::count_pages(std::size_t bytes) const {
  constexpr std::size_t kMappedAround = std::size_t{128} << 10U;  // the system maps neighbours, too
  constexpr std::size_t kMost = std::size_t{24} << 20U;
  const std::size_t more = bytes + kMappedAround;
  if (touched_bytes_.fetch_add(more, std::memory_order_relaxed) + more < kMost) return;
  touched_bytes_.store(0, std::memory_order_relaxed);
  for (const auto& shard : shards_) shard->release_pages();
}

void TokenShards::fail_token(const MappedShard& shard, int64_t first,
                             std::span<const int64_t> tokens) const {
  const auto outside = std::find_if(tokens.begin(), tokens.end(), [this](int64_t token) {
    return token >= use_.vocabulary_size;
  });
  throw RunError(fmt::format(
      "{}: token {} at position {} is not in the vocabulary of {}; is it of another tokenizer, or "
      "damaged?",
      shard.path(), *outside, first + (outside - tokens.begin()), use_.vocabulary_size));
}

std::string TokenShards::make_fingerprint() const {
  constexpr int64_t kWindows = 64;
  constexpr int64_t kWindow = 1024;
  Sha256 sum;
  sum.update(
      fmt::format("tokens {} {} {}\n", size(), use_.vocabulary_size, use_.tokenizer_fingerprint));
  std::vector<int64_t> window(static_cast<std::size_t>(std::min(size(), kWindow)));
  const int64_t last = size() - static_cast<int64_t>(window.size());
  for (int64_t i = 0; i < kWindows; ++i) {
    copy(last * i / (kWindows - 1), window);
    sum.update(window.data(), window.size() * sizeof(int64_t));
  }
  return sum.hex();
}

}  // namespace ddp::train
