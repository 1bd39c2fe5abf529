#include "trainer/runtime/files/error_file.h"

#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "launcher/worker_contract.h"
#include "trainer/runtime/files/atomic_file.h"

namespace ddp::train {
namespace {

std::string error_json(const std::string& message, int exit_code) {
  const nlohmann::ordered_json extra = {
      {"py_callstack", ""},
      {"timestamp", std::to_string(static_cast<long long>(std::time(nullptr)))}};
  const nlohmann::ordered_json root = {
      {"message", {{"message", message}, {"errorCode", exit_code}, {"extraInfo", extra}}}};
  // A message may contain invalid UTF-8 (a file name): replace it, never fail.
  return root.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void write_error_file(const std::string& message, int exit_code) noexcept {
  const char* path = std::getenv(launch::kErrorFile);
  if (path == nullptr || *path == '\0') return;
  try {
    publish_text(path, error_json(message, exit_code));
  } catch (...) {
    // The launcher also gets the exit code; a second error here must not hide the first.
  }
}

}  // namespace ddp::train
