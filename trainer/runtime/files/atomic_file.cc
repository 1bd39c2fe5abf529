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
#include <iterator>
#include <optional>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/descriptor.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void file_error(const std::string& what, const std::string& path, int error) {
  const std::string text = fmt::format("cannot {} {}: {}", what, path, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) throw NoSpaceError(text);
  throw RunError(text);
}

/// put(data, size, bytes before them) writes some of it, as write() does.
template <class Put>
void write_all(const void* data, std::size_t size, const std::string& path, const Put& put) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t n = put(static_cast<const char*>(data) + done, size - done, done);
    if (n < 0 && errno != EINTR) file_error("write", path, errno);
    if (n > 0) done += static_cast<std::size_t>(n);
  }
}

std::string temporary_name(const std::string& path, std::string_view suffix = "") {
  return fmt::format("{}.tmp.{}{}", path, getpid(), suffix);
}

/// Makes the names in the folder of `path` durable. Some file systems cannot; the rename still
/// holds.
void sync_folder(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  const Descriptor fd(
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd >= 0) ::fsync(fd);
}

void rename_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) file_error("rename to", to, errno);
}

/// A temporary second name of `path`, which other processes can revoke.
class SecondName {
 public:
  explicit SecondName(const std::string& path) : path_(path), name_(temporary_name(path, ".link")) {
    ::unlink(name_.c_str());
    error_ = ::link(path.c_str(), name_.c_str()) == 0 ? 0 : errno;
  }
  ~SecondName() { ::unlink(name_.c_str()); }  // rename() of two names of one file does nothing
  SecondName(const SecondName&) = delete;
  SecondName& operator=(const SecondName&) = delete;

  /// `path` is kept as `previous` without ever losing its own name; where hard links are not
  /// supported, it moves, and `previous` is the whole file until the new one takes the first name.
  void become(const std::string& previous) const {
    if (error_ != ENOENT) rename_file(error_ == 0 ? name_ : path_, previous);
  }

 private:
  std::string path_;
  std::string name_;
  int error_ = 0;
};

/// The process id after the last dot of `<name>.tmp.<pid>` (also `.<pid>.link`), or 0.
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
  constexpr std::string_view kSign = ".tmp.";
  int removed = 0;
  for (const std::string& file : files_with(path, std::string(kSign))) {
    const pid_t owner = owner_of(std::string_view(file).substr(file.rfind(kSign) + kSign.size()));
    if (owner <= 0 || !wanted(owner)) continue;
    if (::unlink(file.c_str()) == 0) ++removed;
  }
  return removed;
}

}  // namespace

AtomicFile::AtomicFile(std::string path, bool durable)
    : path_(std::move(path)), temporary_(temporary_name(path_)), durable_(durable) {
  // It would be replaced: run by root, even the machine's /dev/null or its link /dev/stdout.
  std::error_code unknown;
  if (fs::is_other(path_, unknown) ||
      (fs::is_symlink(path_, unknown) && fs::path(path_).parent_path() == "/dev")) {
    throw RunError(fmt::format(
        "cannot create {}: it is a device, a pipe or a link in /dev; choose another path", path_));
  }
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
  write_all(data, size, path_, [this](const char* at, std::size_t left, std::size_t) {
    return ::write(fd_, at, left);
  });
}

void AtomicFile::overwrite(std::size_t offset, const void* data, std::size_t size) {
  write_all(data, size, path_, [&](const char* at, std::size_t left, std::size_t done) {
    return ::pwrite(fd_, at, left, static_cast<off_t>(offset + done));
  });
}

void AtomicFile::sync() {
  if (::fsync(fd_) != 0) file_error("write", path_, errno);
}

void AtomicFile::commit(const std::string& keep_previous_as) {
  commit(keep_previous_as, [] {});
}

void AtomicFile::commit(const std::string& keep_previous_as, const std::function<void()>& check) {
  if (durable_) sync();
  // Taken before the check: what a later process publishes after it must not be kept as ours.
  std::optional<SecondName> present;
  if (!keep_previous_as.empty()) present.emplace(path_);
  check();
  if (present) present->become(keep_previous_as);
  rename_file(temporary_, path_);
  const int fd = fd_;
  fd_ = -1;  // published: the destructor has nothing to remove
  if (::close(fd) != 0 && errno != EINTR) file_error("write", path_, errno);
  if (durable_) sync_folder(path_);
}

void publish_text(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

void publish_if_changed(const std::string& path, const std::string& text) {
  std::ifstream file(path, std::ios::binary);
  if (file && std::string{std::istreambuf_iterator<char>(file), {}} == text) return;
  remove_stale_temporaries(path);
  publish_text(path, text);
}

void move_file(const std::string& from, const std::string& to) {
  rename_file(from, to);
  sync_folder(to);
}

bool file_exists(const std::string& path) {
  std::error_code error;
  const bool there = fs::exists(path, error);
  if (error) throw UnreadableError(path, error.value());
  return there;
}

std::vector<std::string> files_next_to(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  const fs::path folder = parent.empty() ? fs::path(".") : parent;
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    found.push_back(it->path().string());
  if (error && error != std::errc::no_such_file_or_directory)
    throw UnreadableError(folder.string(), error.value());
  return found;
}

std::vector<std::string> files_with(const std::string& path, const std::string& suffix) {
  const std::string prefix = fs::path(path).filename().string() + suffix;
  auto files = files_next_to(path);
  std::erase_if(files, [&](const std::string& file) {
    return !fs::path(file).filename().string().starts_with(prefix);
  });
  return files;
}

int remove_stale_temporaries(const std::string& path) {
  return remove_temporaries(path, [](pid_t owner) { return !alive(owner); });
}

int revoke_temporaries(const std::string& path) { return remove_temporaries(path, alive); }

}  // namespace ddp::train
