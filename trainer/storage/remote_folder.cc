#include "trainer/storage/remote_folder.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "trainer/runtime/remote_path.h"
#include "trainer/storage/arrow_module.h"

namespace ddp::train {
namespace {

constexpr const char* kModuleFile = "libtrainer_arrow.so";

// Beside the executable in a build tree (../lib) and after `cmake --install` (../lib or ../lib64).
std::filesystem::path find_module() {
  std::error_code ignored;
  const auto prefix =
      std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().parent_path();
  for (const auto* folder : {"lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"}) {
    auto candidate = prefix / folder / kModuleFile;
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  }
  return {};
}

/// Never closed: the libraries behind it have threads of their own.
ArrowModuleEntry load(const std::string& url) {
  const auto path = find_module();
  if (path.empty()) {
    throw RunError(url +
                   ": this trainer was built without Arrow; install pyarrow into the build's "
                   "environment and build again");
  }
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw RunError(fmt::format("{}: cannot load the storage libraries: {}", url, ::dlerror()));
  const auto entry = reinterpret_cast<ArrowModuleEntry>(::dlsym(library, kArrowModuleEntry));
  if (entry == nullptr)
    throw RunError(fmt::format("{}: {} is not trainer's module", url, path.string()));
  return entry;
}

/// A folder's name is sound when a name in it is.
void check_name(const std::string& url) {
  try {
    split_remote(url + "/name");
  } catch (const UserError&) {
    throw UserError(url + ": not the name of a folder; write s3://bucket/folder");
  }
}

}  // namespace

std::unique_ptr<RemoteFolder> open_remote_folder(const std::string& url) {
  check_name(url);
  return std::unique_ptr<RemoteFolder>(load(url)(url));
}

}  // namespace ddp::train
