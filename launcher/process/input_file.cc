#include "launcher/process/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/base/errors.h"
#include "launcher/base/signal_names.h"
#include "launcher/base/system/descriptors.h"
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

// As ssh does with keys; a file of root's may be readable for its group, as those are that
// Kubernetes mounts for a container's user.
void refuse_public(const InputOption& option, const std::string& file, int fd) {
  struct stat status {};
  if (!option.secret || ::fstat(fd, &status) != 0) return;
  const auto user = ::geteuid();
  if (status.st_uid != user && status.st_uid != 0) {
    usage_error(
        fmt::format("{}{}: belongs to another user (uid {}), who may know it; use a file "
                    "of your own",
                    option.name, file, status.st_uid));
  }
  const mode_t open_bits = status.st_uid == 0 && user != 0 ? 0037 : 0077;
  if ((status.st_mode & open_bits) != 0) {
    usage_error(
        fmt::format("{}{}: other users can read or change it (mode {:04o}); run: chmod 600 "
                    "{}",
                    option.name, file, status.st_mode & 07777, file));
  }
}

// Waits until there is something to read. Throws for a signal that ends jobs.
void wait_to_read(int fd, const std::string& what, int signal_fd, const SignalMailbox& signals) {
  for (;;) {
    std::array<pollfd, 2> fds{pollfd{fd, POLLIN, 0}, pollfd{signal_fd, POLLIN, 0}};
    if (::poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR)
      usage_error(fmt::format("{}: {}", what, error_text(errno)));
    if (const int signal = take_stop_signal(signal_fd, signals); signal != 0) {
      throw LaunchError(kExitSignalBase + signal,
                        fmt::format("{}: {} came before its end did", what, signal_name(signal)));
    }
    if (fds[0].revents != 0) return;
  }
}

}  // namespace

std::string read_input_file(const InputOption& option, const std::string& file, std::size_t most,
                            const SignalMailbox& signals) {
  const auto refuse = [&](int error) {
    usage_error(fmt::format("{}{}: {}; {}", option.name, file, error_text(error), option.remedy));
  };
  const Descriptor input(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (input.get() < 0) refuse(errno);
  refuse_public(option, file, input.get());
  const Descriptor signal_fd = signals.open_fd();
  std::string text;
  std::array<char, 16 << 10> buffer;
  while (text.size() < most) {
    wait_to_read(input.get(), option.name + file, signal_fd.get(), signals);
    const auto got =
        ::read(input.get(), buffer.data(), std::min(buffer.size(), most - text.size()));
    if (got < 0 && errno != EAGAIN && errno != EINTR) refuse(errno);
    if (got == 0) break;
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

std::string read_token_line(std::size_t most, const SignalMailbox& signals) {
  const char* const kWhat = "the token on standard input";
  const Descriptor signal_fd = signals.open_fd();
  std::string text;
  for (;;) {
    wait_to_read(STDIN_FILENO, kWhat, signal_fd.get(), signals);
    char byte = 0;
    const auto got = ::read(STDIN_FILENO, &byte, 1);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0 || text.size() >= most)
      throw LaunchError(kExitFailed, fmt::format("{}: its line did not end", kWhat));
    if (byte == '\n') return text;
    text += byte;
  }
}

}  // namespace ddp::launch
