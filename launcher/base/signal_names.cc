#include "launcher/base/signal_names.h"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <array>

#include "launcher/base/text.h"

namespace ddp::launch {
namespace {

constexpr std::array kNeverHandled{SIGKILL, SIGSTOP, SIGCHLD, SIGPIPE, SIGSEGV,
                                   SIGBUS,  SIGFPE,  SIGILL,  SIGTRAP, SIGSYS};

}  // namespace

int signal_number(std::string_view name) {
  const auto given = whole_number(name);
  int number = given.value_or(0);
  if (!given) {
    const std::string wanted(name.substr(0, 3) == "SIG" ? name.substr(3) : name);
    for (int signal = 1; signal < 32; ++signal) {
      const char* known = ::sigabbrev_np(signal);
      if (known && wanted == known) number = signal;
    }
  }
  const bool handled = std::ranges::find(kNeverHandled, number) == kNeverHandled.end();
  return number < 1 || number > SIGRTMAX || !handled ? 0 : number;
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

}  // namespace ddp::launch
