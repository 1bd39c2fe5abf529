// Paths of a run's files within its folder, laid out as torchrun does:
// <run>/attempt_<n>/<local rank>/error.json.
#pragma once

#include <string>
#include <string_view>

namespace ddp::launch {

inline constexpr std::string_view kAttemptPrefix = "attempt_";
inline constexpr const char* kErrorFileName = "error.json";
inline constexpr const char* kResultFileName = "result.json";

inline std::string attempt_folder(const std::string& run, int attempt) {
  return run + "/" + std::string(kAttemptPrefix) + std::to_string(attempt);
}
inline std::string worker_folder(const std::string& run, int attempt, int local_rank) {
  return attempt_folder(run, attempt) + "/" + std::to_string(local_rank);
}

}  // namespace ddp::launch
