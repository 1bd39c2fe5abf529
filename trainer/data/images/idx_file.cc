#include "trainer/data/images/idx_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr int kMostIdxDimensions = 4;
/// Larger than any array of bytes that a file of this kind has held, and far below overflow.
constexpr int64_t kMostIdxElements = int64_t{1} << 40;

/// A compressed file may grow to this at least, and beyond it to so many times its own size. Real
/// images compress to a fifth, and a file of zeros to a thousandth.
constexpr int64_t kUncheckedBytes = int64_t{1} << 30;
constexpr int64_t kMostCompression = 100;

/// zlib reads a file that is not compressed as it is.
class GzReader {
 public:
  explicit GzReader(const std::string& path)
      : path_(path), file_(::gzopen(path.c_str(), "rb"), &::gzclose) {
    if (!file_) throw UserError(fmt::format("{}: {}", path, std::strerror(errno)));
  }

  bool is_compressed() { return ::gzdirect(file_.get()) == 0; }
  /// Fewer than `size` bytes at the end of the file alone.
  std::size_t read(uint8_t* bytes, std::size_t size) {
    constexpr std::size_t kPiece = std::size_t{1} << 30U;
    std::size_t done = 0;
    while (done < size) {
      const int got =
          ::gzread(file_.get(), bytes + done, static_cast<unsigned>(std::min(size - done, kPiece)));
      if (got < 0) fail();
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }
  /// The end of a compressed file that was cut shows here alone.
  void finish() {
    uint8_t byte = 0;
    if (read(&byte, 1) != 0)
      throw UserError(fmt::format("{}: holds more bytes than its dimensions allow", path_));
    int code = Z_OK;
    ::gzerror(file_.get(), &code);
    if (code != Z_OK) fail();
  }

 private:
  [[noreturn]] void fail() {
    int code = Z_OK;
    const std::string text = ::gzerror(file_.get(), &code);
    throw UserError(fmt::format("{}: {}", path_, code == Z_ERRNO ? std::strerror(errno) : text));
  }

  std::string path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
};

std::vector<int64_t> read_shape(GzReader& file, const std::string& path) {
  uint8_t head[4] = {};
  if (file.read(head, sizeof head) != sizeof head || head[0] != 0 || head[1] != 0) {
    throw UserError(fmt::format(
        "{}: not an idx file: it does not begin with two zero bytes, type and dimensions", path));
  }
  if (head[2] != kUnsignedByte) {
    throw UserError(
        fmt::format("{}: its elements are of type 0x{:02x}; only unsigned bytes (0x08) "
                    "can be read",
                    path, head[2]));
  }
  if (head[3] == 0 || head[3] > kMostIdxDimensions)
    throw UserError(fmt::format("{}: has {} dimensions; 1 to 4 can be read", path, head[3]));
  std::vector<int64_t> shape;
  for (int i = 0; i < head[3]; ++i) {
    uint8_t size[4] = {};
    if (file.read(size, sizeof size) != sizeof size)
      throw UserError(fmt::format("{}: ends within its dimensions", path));
    shape.push_back((int64_t{size[0]} << 24) | (size[1] << 16) | (size[2] << 8) | size[3]);
  }
  return shape;
}

int64_t element_count(const std::vector<int64_t>& shape, const std::string& path) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size == 0 || count > kMostIdxElements / size) {
      throw UserError(
          fmt::format("{}: its dimensions are {}; none may be 0, nor their product "
                      "above 2^40",
                      path, fmt::join(shape, "x")));
    }
    count *= size;
  }
  return count;
}

/// Piece by piece: the dimensions of a damaged file ask for no memory that its bytes do not fill.
std::vector<uint8_t> read_elements(GzReader& file, std::size_t count) {
  constexpr std::size_t kPiece = std::size_t{16} << 20U;
  std::vector<uint8_t> elements;
  while (elements.size() < count) {
    const std::size_t before = elements.size();
    elements.resize(std::min(count, before + kPiece));
    const std::size_t got = file.read(elements.data() + before, elements.size() - before);
    if (before + got == elements.size()) continue;
    elements.resize(before + got);
    break;
  }
  return elements;
}

/// Throws UserError if a small file claims to hold what would fill the memory.
void check_compression(const std::string& path, int64_t count) {
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  if (count <= std::max(kUncheckedBytes, size * kMostCompression)) return;
  throw UserError(
      fmt::format("{}: claims {} of pixels in a file of {}; decompress it if that is right", path,
                  size_text(static_cast<double>(count)), size_text(static_cast<double>(size))));
}

}  // namespace

IdxArray read_idx(const std::string& path) {
  std::error_code unknown;
  const auto type = std::filesystem::status(path, unknown).type();
  if (type == std::filesystem::file_type::fifo || type == std::filesystem::file_type::character)
    throw UserError(path + ": is a pipe or a device; give a regular file");
  GzReader file(path);
  IdxArray array;
  array.shape = read_shape(file, path);
  const auto count = static_cast<std::size_t>(element_count(array.shape, path));
  if (file.is_compressed()) check_compression(path, static_cast<int64_t>(count));
  array.elements = read_elements(file, count);
  if (array.elements.size() < count) {
    throw UserError(
        fmt::format("{}: holds {} of the {} bytes that its dimensions {} require; it seems "
                    "truncated: copy or download it again",
                    path, array.elements.size(), count, fmt::join(array.shape, "x")));
  }
  file.finish();
  return array;
}

}  // namespace ddp::train
