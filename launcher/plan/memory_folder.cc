#include "launcher/plan/memory_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>

#include "launcher/base/system/path_search.h"

namespace ddp::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "ddp-run-";
// Created once the folder is locked, removed last: an unlocked folder that contains it belongs to a
// dead job.
constexpr const char* kMark = ".ddp-run";
// Another ddp-run's start may remove a folder that is not locked yet.
constexpr int kAttempts = 10;

// Returns none if it is not one of our folders or is locked by another process.
Descriptor open_and_lock(const std::string& folder) {
  Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  return ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 ? std::move(fd) : Descriptor();
}

bool mark(int folder) {
  const Descriptor fd(
      ::openat(folder, kMark, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  return fd.get() >= 0;
}

bool is_ours(int folder) {
  struct stat own {};
  return ::fstat(folder, &own) == 0 && own.st_uid == ::geteuid() && (own.st_mode & 07777) == 0700;
}

bool is_marked(int folder) {
  struct stat mark {};
  return ::fstatat(folder, kMark, &mark, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(mark.st_mode);
}

void remove_marked(const std::string& folder) {
  const fs::path marker = fs::path(folder) / kMark;
  for (const fs::path& path : paths_in(folder)) {
    std::error_code busy;
    if (path != marker) fs::remove_all(path, busy);
  }
  ::unlink(marker.c_str());
  ::rmdir(folder.c_str());
}

void remove_dead(const std::string& place) {
  for (const fs::path& path : paths_in(place)) {
    if (!path.filename().string().starts_with(kPrefix)) continue;
    const Descriptor lock = open_and_lock(path);
    if (!is_ours(lock.get())) continue;
    if (is_marked(lock.get())) remove_marked(path);
    // One that is unmarked and empty, too: its job died before, or tries again.
    ::rmdir(path.c_str());
  }
}

}  // namespace

std::string MemoryFolder::planned(const std::string& place) {
  if (::access(place.c_str(), W_OK | X_OK) != 0) return "";
  return place + "/" + std::string(kPrefix) + "XXXXXX";
}

MemoryFolder::MemoryFolder(const std::string& place) {
  remove_dead(place);
  for (int attempt = 0; attempt < kAttempts && path_.empty(); ++attempt) {
    std::string name = planned(place);
    if (name.empty() || !::mkdtemp(name.data())) return;
    lock_ = open_and_lock(name);
    if (mark(lock_.get())) {
      path_ = name;
    } else {
      lock_.reset();
      ::rmdir(name.c_str());
    }
  }
}

void MemoryFolder::remove() const {
  if (!path_.empty()) remove_marked(path_);
}

}  // namespace ddp::launch
