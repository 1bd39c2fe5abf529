#include "trainer/hydra/yaml/place.h"

#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

constexpr std::string_view kCommandLine = "command line: ";

}  // namespace

Place Place::of_override(const std::string& text) {
  return {std::make_shared<const std::string>(std::string(kCommandLine) + text), 0, 0};
}

std::string Place::str() const {
  if (!source) return "";
  if (line == 0) return *source;
  return *source + ":" + std::to_string(line) + ":" + std::to_string(column);
}

void fail_with(const Place& place, const std::string& text) {
  const std::string where = place.str();
  if (where.empty()) throw UserError(text);
  const std::string key = text.substr(0, text.find(": "));
  const std::size_t end = where.find(key + "=");
  const bool in_override = place.line == 0 && end != std::string::npos &&
                           where.find_first_not_of('+', kCommandLine.size()) == end;
  throw UserError(where + ": " + (in_override ? text.substr(key.size() + 2) : text));
}

}  // namespace ddp::train
