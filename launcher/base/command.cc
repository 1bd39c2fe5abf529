#include "launcher/base/command.h"

#include <string_view>

extern "C" char** environ;

namespace ddp::launch {

std::string value_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

Environment inherited_environment() {
  Environment env;
  for (char** entry = environ; entry && *entry; ++entry) {
    // With duplicate names, getenv returns the first.
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos)
      env.try_emplace(std::string(text.substr(0, equals)), text.substr(equals + 1));
  }
  return env;
}

}  // namespace ddp::launch
