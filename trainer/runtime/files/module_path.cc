#include "trainer/runtime/files/module_path.h"

namespace ddp::train {

std::filesystem::path find_module(const char* file) {
  std::error_code ignored;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto* folder : {"", "../lib"}) {  // an installation; a build tree
    auto candidate = own / folder / file;
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  }
  return {};
}

}  // namespace ddp::train
