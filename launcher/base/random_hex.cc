#include "launcher/base/random_hex.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cerrno>
#include <vector>

#include "launcher/base/errors.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {

std::string random_hex(std::size_t bytes) {
  std::vector<unsigned char> values(bytes);
  if (::getrandom(values.data(), bytes, 0) != static_cast<ssize_t>(bytes))
    throw LaunchError(kExitFailed, "cannot get random numbers: " + error_text(errno));
  std::string text;
  for (const unsigned char value : values) text += fmt::format("{:02x}", value);
  return text;
}

}  // namespace ddp::launch
