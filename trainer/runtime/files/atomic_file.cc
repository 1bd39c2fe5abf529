#include "trainer/runtime/files/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void file_error(const std::string& what, const std::string& path, int error) {
  const std::string text = fmt::format("cannot {} {}: {}", what, path, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) throw NoSpaceError(text);
  throw RunError(text);
}

std::string temporary_name(const std::string& path, std::string_view suffix = "") {
  return fmt::format("{}.tmp.{}{}", path, getpid(), suffix);
}

/// Makes the names in the folder of `path` durable. Some file systems cannot; the rename still
/// holds.
void sync_folder(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

void rename_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) file_error("rename to", to, errno);
}

/// `path` gets the second name `previous` without ever losing the first; where hard links are not
/// supported, it moves, and `previous` is the whole file until the new one takes the first name.
void keep_previous(const std::string& path, const std::string& previous) {
  const std::string second = temporary_name(path, ".link");
  ::unlink(second.c_str());
  if (::link(path.c_str(), second.c_str()) == 0) {
    rename_file(second, previous);
    ::unlink(second.c_str());  // rename() of two names of one file does nothing
    return;
  }
  if (errno == ENOENT) return;  // no present file to keep
  rename_file(path, previous);
}

/// The process id behind the last dot of `<name>.tmp.<pid>` (also `.<pid>.link`), or 0.
pid_t owner_of(std::string_view suffix) {
  if (suffix.ends_with(".link")) suffix.remove_suffix(5);
  pid_t pid = 0;
  const auto result = std::from_chars(suffix.data(), suffix.data() + suffix.size(), pid);
  const bool whole = result.ec == std::errc() && result.ptr == suffix.data() + suffix.size();
  return whole ? pid : 0;
}

/// Our own id counts as dead: in a container the restarted process often gets the id of the killed
/// one.
bool alive(pid_t pid) { return pid != getpid() && (::kill(pid, 0) == 0 || errno == EPERM); }

/// Removes the temporary files whose owner is `wanted`.
int remove_temporaries(const std::string& path, const std::function<bool(pid_t)>& wanted) {
  const fs::path target(path);
  const std::string prefix = target.filename().string() + ".tmp.";
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  int removed = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const pid_t owner = owner_of(std::string_view(name).substr(prefix.size()));
    if (owner <= 0 || !wanted(owner)) continue;
    if (::unlink(it->path().c_str()) == 0) ++removed;
  }
  return removed;
}

}  // namespace

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_(temporary_name(path_)) {
  ::unlink(temporary_.c_str());  // of a process that had our id; never followed if it is a link
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd_ < 0) file_error("create", path_, errno);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = ::write(fd_, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) file_error("write", path_, errno);
    at += n;
    size -= static_cast<std::size_t>(n);
  }
}

void AtomicFile::overwrite(std::size_t offset, const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = ::pwrite(fd_, at, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) file_error("write", path_, errno);
    at += n;
    offset += static_cast<std::size_t>(n);
    size -= static_cast<std::size_t>(n);
  }
}

void AtomicFile::sync() {
  if (::fsync(fd_) != 0) file_error("write", path_, errno);
}

void AtomicFile::commit(const std::string& keep_previous_as) {
  sync();
  if (!keep_previous_as.empty()) keep_previous(path_, keep_previous_as);
  rename_file(temporary_, path_);
  const int fd = fd_;
  fd_ = -1;  // published: the destructor has nothing to remove
  if (::close(fd) != 0 && errno != EINTR) file_error("write", path_, errno);
  sync_folder(path_);
}

void publish_if_changed(const std::string& path, const std::string& text) {
  std::ifstream file(path, std::ios::binary);
  if (file && std::string{std::istreambuf_iterator<char>(file), {}} == text) return;
  AtomicFile changed(path);
  changed.write(text.data(), text.size());
  changed.commit();
}

void move_file(const std::string& from, const std::string& to) {
  rename_file(from, to);
  sync_folder(to);
}

int remove_stale_temporaries(const std::string& path) {
  return remove_temporaries(path, [](pid_t owner) { return !alive(owner); });
}

int revoke_temporaries(const std::string& path) { return remove_temporaries(path, alive); }

}  // namespace ddp::train
