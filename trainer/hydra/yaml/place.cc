#include "trainer/hydra/yaml/place.h"

#include "trainer/runtime/error.h"

namespace ddp::train {

std::string Place::str() const {
  if (!source) return "";
  if (line == 0) return *source;
  return *source + ":" + std::to_string(line) + ":" + std::to_string(column);
}

void fail_with(const Place& place, const std::string& text) {
  const std::string where = place.str();
  throw UserError(where.empty() ? text : where + ": " + text);
}

}  // namespace ddp::train
