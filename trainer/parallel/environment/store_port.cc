#include "trainer/parallel/environment/store_port.h"

#include <fmt/format.h>

#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

namespace ddp::train {
namespace {

/// By one of the kernel's tables, see proc(5); nothing if it cannot be read.
std::optional<bool> listens(const char* table, uint16_t port) {
  std::ifstream file(table);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;  // the heading
  const std::string end = fmt::format(":{:04X}", port);
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string number, local, remote, state;
    fields >> number >> local >> remote >> state;
    if (state == "0A" && local.ends_with(end)) return true;
  }
  return false;
}

}  // namespace

void wait_for_listener(uint16_t port, std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kBetweenLooks{2};
  const auto end = std::chrono::steady_clock::now() + limit;
  do {
    const auto v4 = listens("/proc/self/net/tcp", port);
    const auto v6 = listens("/proc/self/net/tcp6", port);
    if ((!v4 && !v6) || v4.value_or(false) || v6.value_or(false)) return;
    std::this_thread::sleep_for(kBetweenLooks);
  } while (std::chrono::steady_clock::now() < end);
}

}  // namespace ddp::train
