#include "launcher/base/run_layout.h"

#include <fmt/format.h>

namespace ddp::launch {

std::string attempt_folder(const std::string& run, int attempt) {
  return fmt::format("{}/{}{}", run, kAttemptPrefix, attempt);
}

std::string worker_folder(const std::string& run, int attempt, int local_rank) {
  return fmt::format("{}/{}", attempt_folder(run, attempt), local_rank);
}

}  // namespace ddp::launch
