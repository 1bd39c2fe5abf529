#include "launcher/process/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/base/descriptors.h"
#include "launcher/base/errors.h"
#include "launcher/base/signal_names.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// The signal that ends the wait; 0: none has come.
int take_stop_signal(int signal_fd, const SignalMailbox& signals) {
  signalfd_siginfo info{};
  while (::read(signal_fd, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signals.ends_job(signal)) return signal;
    if (signal == SIGTSTP) ::raise(SIGSTOP);
  }
  return 0;
}

}  // namespace

std::string read_input_file(const InputOption& option, const std::string& file, std::size_t most,
                            const SignalMailbox& signals) {
  const auto refuse = [&](int error) {
    usage_error(fmt::format("{}{}: {}; {}", option.name, file, error_text(error), option.remedy));
  };
  const Descriptor input(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (input.get() < 0) refuse(errno);
  const Descriptor signal_fd(signals.open_fd());
  std::string text;
  std::array<char, 16 << 10> buffer;
  while (text.size() < most) {
    std::array<pollfd, 2> fds{pollfd{input.get(), POLLIN, 0}, pollfd{signal_fd.get(), POLLIN, 0}};
    if (::poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) refuse(errno);
    if (const int signal = take_stop_signal(signal_fd.get(), signals); signal != 0) {
      throw LaunchError(
          kExitSignalBase + signal,
          fmt::format("{}{}: {} came before its end did", option.name, file, signal_name(signal)));
    }
    if (fds[0].revents == 0) continue;
    const auto got =
        ::read(input.get(), buffer.data(), std::min(buffer.size(), most - text.size()));
    if (got < 0 && errno != EAGAIN && errno != EINTR) refuse(errno);
    if (got == 0) break;
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace ddp::launch
