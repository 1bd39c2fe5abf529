// Any bytes are a file of tokens that lie within it and the vocabulary, or one line of complaint.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fuzz/check.h"
#include "trainer/data/tokens/token_shards.h"
#include "trainer/runtime/error.h"

using namespace ddp::train;

namespace {

void check_complaint(const std::string& text) {
  constexpr std::size_t kReadable = 1000;
  FUZZ_CHECK(!text.empty());
  FUZZ_CHECK(text.size() < kReadable);
  FUZZ_CHECK(text.find('\n') == std::string::npos);
}

void try_file(const std::string& path, std::size_t size) {
  try {
    const TokenShards shards({path, path}, {50257, ""});
    FUZZ_CHECK(static_cast<std::size_t>(shards.size()) <= size);  // twice at most half the bytes
    std::vector<int64_t> tokens(static_cast<std::size_t>(shards.size()));
    shards.copy(0, tokens);
    for (const int64_t token : tokens) FUZZ_CHECK(token >= 0 && token < 50257);
  } catch (const UserError& error) {
    check_complaint(error.what());
  } catch (const RunError& error) {
    check_complaint(error.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int fd = ::memfd_create("tokens", MFD_CLOEXEC);
  FUZZ_CHECK(fd >= 0);
  FUZZ_CHECK(::write(fd, data, size) == static_cast<ssize_t>(size));
  try_file("/proc/self/fd/" + std::to_string(fd), size);
  ::close(fd);
  return 0;
}
