#include "trainer/runtime/files/temporary_folder.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>

#include "trainer/runtime/error.h"

namespace ddp::train {

namespace fs = std::filesystem;

namespace {

// Never destroyed: a folder may outlive all static objects.
struct Folders {
  std::mutex mutex;
  std::set<std::string> paths;
};
Folders& folders() {
  static auto* const all = new Folders;
  return *all;
}

}  // namespace

TemporaryFolder::TemporaryFolder(std::string_view content) {
  std::error_code error;
  path_ = (fs::temp_directory_path(error) / "trainer-XXXXXX").string();
  const std::lock_guard lock(folders().mutex);
  if (!error && ::mkdtemp(path_.data()) != nullptr) {
    folders().paths.insert(path_);
    return;
  }
  const std::string why = error ? error.message() : std::strerror(errno);
  const char* const parent = std::getenv("TMPDIR");
  throw UserError(
      fmt::format("TMPDIR={}: cannot create a folder for {}: {}; set TMPDIR to a folder with room",
                  parent == nullptr ? "" : parent, content, why));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  const std::lock_guard lock(folders().mutex);
  folders().paths.erase(path_);
}

void TemporaryFolder::remove_all() {
  std::error_code ignored;
  const std::lock_guard lock(folders().mutex);
  for (const std::string& path : folders().paths) fs::remove_all(path, ignored);
}

}  // namespace ddp::train
