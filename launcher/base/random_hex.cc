#include "launcher/base/random_hex.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cstdint>

namespace ddp::launch {

std::string random_sixteen_digits() {
  std::uint64_t bits = 0;
  [[maybe_unused]] const auto filled = ::getrandom(&bits, sizeof bits, 0);
  return fmt::format("{:016x}", bits);
}

}  // namespace ddp::launch
