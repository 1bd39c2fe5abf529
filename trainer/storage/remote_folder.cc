#include "trainer/storage/remote_folder.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "trainer/runtime/files/module_path.h"
#include "trainer/runtime/files/remote_path.h"
#include "trainer/storage/arrow_module.h"

namespace ddp::train {
namespace {

constexpr const char* kArrowModuleFile = "libtrainer_arrow.so";

/// Never closed: the libraries behind it have threads of their own.
ArrowModuleEntry load_arrow(const std::string& url) {
  const auto path = find_module(kArrowModuleFile);
  if (path.empty()) {
    throw RunError(url +
                   ": this trainer was built without object stores; ./scripts/setup.sh "
                   "--object-stores, then build again");
  }
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw RunError(fmt::format("{}: cannot load the storage libraries: {}", url, ::dlerror()));
  const auto entry = reinterpret_cast<ArrowModuleEntry>(::dlsym(library, kArrowModuleEntry));
  if (entry == nullptr)
    throw RunError(fmt::format("{}: {} is not trainer's storage module", url, path.string()));
  return entry;
}

/// A folder's name is sound when a name in it is.
void check_name(const std::string& url) {
  try {
    split_remote(url + "/name");
  } catch (const UserError&) {
    throw UserError(url + ": not a folder name; write s3://bucket/folder");
  }
}

}  // namespace

std::unique_ptr<RemoteFolder> open_remote_folder(const std::string& url) {
  check_name(url);
  return std::unique_ptr<RemoteFolder>(load_arrow(url)(url));
}

}  // namespace ddp::train
