#include "trainer/hydra/compose/folders.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"

namespace ddp::train {

std::string absolute_path(const std::string& path) {
  std::string expanded = path;
  const char* home = std::getenv("HOME");
  if (home != nullptr && (path == "~" || path.starts_with("~/"))) expanded = home + path.substr(1);
  std::string out = std::filesystem::absolute(expanded).lexically_normal().string();
  if (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

void publish_text(const std::string& folder, const std::string& name, const std::string& text,
                  const std::string& key) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw UserError(fmt::format("{}: cannot create {}: {}; choose another folder", key, folder,
                                error.message()));
  }
  publish_if_changed(folder + "/" + name, text);
}

}  // namespace ddp::train
