// trainer: trains minGPT with DistributedDataParallel. What each mode does is in modes.h.
#include <c10/util/Logging.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "launcher/worker_contract.h"
#include "trainer/app/arguments/trainer_args.h"
#include "trainer/app/exit_report.h"
#include "trainer/app/modes.h"
#include "trainer/health/heartbeat_file.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/parallel/device/cuda_module.h"

namespace ddp::train {
namespace {

int run(int argc, const char* const* argv) {
  add_model_keys();
  const TrainerArgs args = parse_trainer_args(argc, argv);
  if (args.mode != Mode::kTrain) beat_at_start(/*promise=*/0.0);  // nor do these say more
  return run_mode(args);
}

}  // namespace

#ifndef DDP_SANITIZED  // their own libraries are not ready so early
// Runs before the constructors of libraries: oneMKL's, in libtorch_cpu.so, ends a process without a
// working directory, and reports that libtorch_cpu.so cannot be loaded.
static void refuse_deleted_folder() {
  char path[PATH_MAX];
  if (::getcwd(path, sizeof path) != nullptr || errno != ENOENT) return;
  constexpr std::string_view kLine =
      "error: the current directory no longer exists; change to another one (cd)\n";
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, kLine.data(), kLine.size());
  ::_exit(launch::kExitUsage);
}
[[gnu::section(".preinit_array"),
  gnu::used]] static void (*const kBeforeLibraries)() = refuse_deleted_folder;
#endif

// Before anything is opened or logged. A closed standard stream is replaced, so that no later file
// gets its number; torch's own log, which prints stack traces of expected failures, is off unless
// TORCH_CPP_LOG_LEVEL asks for it.
static void prepare_process() {
  for (int fd = ::open("/dev/null", O_RDWR); fd >= 0; fd = ::open("/dev/null", O_RDWR)) {
    if (fd <= STDERR_FILENO) continue;
    ::close(fd);
    break;
  }
  ::setenv("TORCH_CPP_LOG_LEVEL", "FATAL", 0);
  c10::initLogging();
  end_with_uncaught_exceptions();
}

static int guarded_main(int argc, const char* const* argv) {
  try {
    return run(argc, argv);
  } catch (...) {
    return report_current_exception();
  }
}

/// LibTorch would unregister its operators one by one, a third of the CPU time that a short run
/// takes. The CUDA module's libraries end as they want to.
static int ended(int exit_code) {
  if (loaded_cuda_module() != nullptr) return exit_code;
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

}  // namespace ddp::train

int main(int argc, char** argv) {
  ddp::train::beat_at_start(ddp::train::promise_of_start(ddp::train::nvidia_device_visible()));
  ddp::train::prepare_process();
  return ddp::train::ended(ddp::train::guarded_main(argc, argv));
}
