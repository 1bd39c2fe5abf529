// Any bytes are a snapshot whose tensors lie within them, or one short line of complaint.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "tests/fuzz/check.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/xxh3.h"
#include "trainer/tensorfile/safetensors.h"

using namespace ddp::train;

namespace {

/// A file without a place on the disk.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& bytes) : fd_(::memfd_create("snapshot", MFD_CLOEXEC)) {
    FUZZ_CHECK(fd_ >= 0);
    FUZZ_CHECK(::write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

void check_complaint(const std::string& text) {
  constexpr std::size_t kReadable = 1000;
  FUZZ_CHECK(!text.empty());
  FUZZ_CHECK(text.size() < kReadable);
  FUZZ_CHECK(text.find('\n') == std::string::npos);
}

/// The sanitizer sees what lies outside of the file.
std::size_t read_tensors(const SafetensorsFile& file, std::size_t file_size) {
  std::size_t sum = 0;
  unsigned bytes = 0;
  for (const auto& tensor : file.tensors()) {
    FUZZ_CHECK(tensor.size <= file_size);
    for (std::size_t i = 0; i < tensor.size; ++i)
      bytes += std::to_integer<unsigned>(tensor.data[i]) & 1U;
    sum += tensor.size;
    FUZZ_CHECK(file.find(tensor.name) != nullptr);
  }
  FUZZ_CHECK(bytes <= sum);
  return sum;
}

void try_bytes(const std::string& bytes) {
  const MemoryFile stored(bytes);
  try {
    const SafetensorsFile file(stored.path());
    const std::size_t sum = read_tensors(file, bytes.size());
    file.verify_checksum();
    FUZZ_CHECK(sum < bytes.size());  // checked tensors do not overlap
  } catch (const UserError& error) {
    check_complaint(error.what());
  } catch (const RunError& error) {
    check_complaint(error.what());
  }
}

/// The header's checksum set right, so that what comes after it is tried as well.
std::string with_right_checksum(std::string bytes) {
  constexpr std::size_t kDigits = 32;
  const std::string needle = "\"checksum\":\"";
  uint64_t length = 0;
  if (bytes.size() < sizeof length) return "";
  std::memcpy(&length, bytes.data(), sizeof length);
  const auto at = bytes.find(needle, sizeof length);
  if (at == std::string::npos || length > bytes.size() - sizeof length) return "";
  const std::size_t front = sizeof length + length;
  if (at + needle.size() + kDigits > front) return "";
  bytes.replace(at + needle.size(), kDigits, kDigits, '0');
  return bytes.replace(at + needle.size(), kDigits, xxh3_hex(bytes.data(), front));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try_bytes(bytes);
  const std::string mended = with_right_checksum(bytes);
  if (!mended.empty()) try_bytes(mended);
  return 0;
}
