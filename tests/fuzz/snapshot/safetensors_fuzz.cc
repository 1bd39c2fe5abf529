// Any bytes are a whole container or one line of complaint; nothing outside the file is read.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/safetensors.h"

using namespace ddp::train;

namespace {

/// A file in memory that holds the input.
class InputFile {
 public:
  InputFile(const std::uint8_t* data, std::size_t size) : fd_(::memfd_create("input", 0)) {
    FUZZ_CHECK(fd_ >= 0);
    FUZZ_CHECK(::write(fd_, data, size) == static_cast<ssize_t>(size));
  }
  ~InputFile() { ::close(fd_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

void read_all(const SafetensorsFile& file, std::size_t file_size) {
  std::size_t sum = 0;
  unsigned bytes = 0;
  for (const auto& tensor : file.tensors()) {
    FUZZ_CHECK(tensor.size <= file_size);
    for (std::size_t i = 0; i < tensor.size; ++i)
      bytes += std::to_integer<unsigned>(tensor.data[i]);
    sum += tensor.size;
    FUZZ_CHECK(file.find(tensor.name) != nullptr);
  }
  file.verify_checksum();
  FUZZ_CHECK(sum < file_size);  // checked tensors do not overlap
  FUZZ_CHECK(bytes <= 255 * file_size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const InputFile input(data, size);
  try {
    const SafetensorsFile file(input.path());
    read_all(file, size);
  } catch (const UserError& error) {
    FUZZ_CHECK(*error.what() != '\0');
  } catch (const RunError& error) {
    FUZZ_CHECK(*error.what() != '\0');
  }
  return 0;
}
