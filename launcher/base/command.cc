#include "launcher/base/command.h"

#include <string_view>

extern "C" char** environ;

namespace ddp::launch {

Environment inherited_environment() {
  Environment env;
  for (char** entry = environ; entry && *entry; ++entry) {
    // The first of two equal names is the one that getenv finds.
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos)
      env.try_emplace(std::string(text.substr(0, equals)), text.substr(equals + 1));
  }
  return env;
}

}  // namespace ddp::launch
