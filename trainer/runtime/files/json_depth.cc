#include "trainer/runtime/files/json_depth.h"

#include <cstddef>

namespace ddp::train {

bool nests_too_deeply(std::string_view json) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++i;
    if (in_string) continue;
    if (c == ']' || c == '}') --depth;
    if ((c == '[' || c == '{') && ++depth > kDeepestJson) return true;
  }
  return false;
}

}  // namespace ddp::train
