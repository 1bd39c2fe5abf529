#include "trainer/storage/arrow_module.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/module_path.h"

namespace ddp::train {

// Never closed: the libraries that it loads have threads of their own.
void* arrow_module_entry(const char* entry, const std::string& what) {
  constexpr const char* kFile = "libtrainer_arrow.so";
  const auto path = find_module(kFile);
  if (path.empty()) return nullptr;
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw RunError(fmt::format("{}: cannot load the storage libraries: {}", what, ::dlerror()));
  void* const found = ::dlsym(library, entry);
  if (found != nullptr) return found;
  throw RunError(fmt::format("{}: {} is not trainer's storage module", what, path.string()));
}

}  // namespace ddp::train
