#include "launcher/base/system/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "launcher/base/system/descriptors.h"

namespace ddp::launch {
namespace {

FileText read_open_file(int fd, std::size_t most) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return {FileProblem::kUnreadable, ""};
  if (!S_ISREG(status.st_mode)) return {FileProblem::kNotRegular, ""};
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > most) return {FileProblem::kTooLarge, ""};
  FileText file;
  file.text.resize(size);
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(fd, file.text.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;  // cut short meanwhile
    done += static_cast<std::size_t>(got);
  }
  file.text.resize(done);
  return file;
}

}  // namespace

std::optional<std::string> end_of_file(const std::string& path, std::streamoff most) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (!file) return std::nullopt;
  file.seekg(std::max<std::streamoff>(0, size - most));
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

FileText read_regular_file(const std::string& path, std::size_t most, Links links) {
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  const Descriptor file(::open(path.c_str(), links == Links::kRefuse ? flags | O_NOFOLLOW : flags));
  if (file.get() >= 0) return read_open_file(file.get(), most);
  return {errno == ENOENT ? FileProblem::kAbsent : FileProblem::kUnreadable, ""};
}

}  // namespace ddp::launch
