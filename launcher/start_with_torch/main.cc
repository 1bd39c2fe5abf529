// Installed as PREFIX/bin/trainer: becomes the program of that name that fits the torch of this
// machine, or prints one line with what to install. Linked statically: the loader's complaint about
// a missing libtorch_cpu.so would come before main().
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>

#include "launcher/base/errors.h"
#include "launcher/plan/torch_programs.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

int fail(const std::string& what, int exit_code) {
  std::fprintf(stderr, "error: %s\n", what.c_str());
  return exit_code;
}

void prepend_library_folders(const std::string& folders) {
  if (folders.empty()) return;
  const char* present = std::getenv("LD_LIBRARY_PATH");
  const std::string value = present && *present ? folders + ":" + present : folders;
  ::setenv("LD_LIBRARY_PATH", value.c_str(), 1);
}

int start(char** argv) {
  const std::string name = std::filesystem::read_symlink("/proc/self/exe").filename();
  const auto program = find_torch_program(name, TorchPlaces::of_this_process());
  if (!program) return fail(name + ": its ddp_run/torch-*/ folder is missing; reinstall it", 2);
  if (program->path.empty()) return fail(program->why_not, kExitUsage);
  prepend_library_folders(program->library_folders);
  ::execv(program->path.c_str(), argv);
  return fail(program->path + ": " + error_text(errno), kExitNotExecutable);
}

}  // namespace
}  // namespace ddp::launch

int main(int, char** argv) {
  try {
    return ddp::launch::start(argv);
  } catch (const std::exception& error) {
    return ddp::launch::fail(error.what(), ddp::launch::kExitFailed);
  }
}
