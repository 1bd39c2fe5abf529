#include "trainer/runtime/files/temporary_folder.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "trainer/runtime/error.h"

namespace ddp::train {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder(std::string_view content) {
  std::error_code error;
  path_ = (fs::temp_directory_path(error) / "trainer-XXXXXX").string();
  if (!error && ::mkdtemp(path_.data()) != nullptr) return;
  const std::string why = error ? error.message() : std::strerror(errno);
  const char* const parent = std::getenv("TMPDIR");
  throw UserError(
      fmt::format("TMPDIR={}: cannot create a folder for {}: {}; set TMPDIR to a folder with room",
                  parent == nullptr ? "" : parent, content, why));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace ddp::train
