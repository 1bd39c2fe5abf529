#include "trainer/runtime/files/json_depth.h"

namespace ddp::train {
namespace {

/// Calls `take` with each character outside strings until it returns false. Returns whether it did.
template <typename Take>
bool stops_outside_strings(std::string_view json, const Take& take) {
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++i;
    if (!in_string && !take(c)) return true;
  }
  return false;
}

}  // namespace

bool nests_too_deeply(std::string_view json, int deepest) {
  int depth = 0;
  return stops_outside_strings(json, [&](char c) {
    if (c == ']' || c == '}') --depth;
    if (c == '[' || c == '{') ++depth;
    return depth <= deepest;
  });
}

bool has_more_members(std::string_view json, std::size_t most) {
  std::size_t members = 0;
  return stops_outside_strings(json, [&](char c) {
    if (c == ':') ++members;
    return members <= most;
  });
}

}  // namespace ddp::train
