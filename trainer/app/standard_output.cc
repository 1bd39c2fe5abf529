#include "trainer/app/standard_output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "trainer/runtime/error.h"

namespace ddp::train {

void print(const std::string& text) {
  errno = 0;
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw RunError(
      fmt::format("cannot write to standard output: {}", std::strerror(errno != 0 ? errno : EIO)));
}

std::string json_output(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void finish_stdout() { print(""); }

}  // namespace ddp::train
