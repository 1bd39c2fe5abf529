#include "trainer/runtime/module_path.h"

namespace ddp::train {

std::filesystem::path find_module(const char* file) {
  std::error_code ignored;
  const auto prefix =
      std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().parent_path();
  for (const auto* folder : {"lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"}) {
    auto candidate = prefix / folder / file;
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  }
  return {};
}

}  // namespace ddp::train
