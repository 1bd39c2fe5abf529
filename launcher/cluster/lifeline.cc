#include "launcher/cluster/lifeline.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "launcher/base/errors.h"
#include "launcher/base/signal_names.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kLongestLine = 64;

}  // namespace

std::vector<int> signals_in(std::string& text) {
  std::vector<int> signals;
  for (std::size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
    const int signal = signal_number(text.substr(0, end));
    if (signal != 0) signals.push_back(signal);
  }
  if (text.size() > kLongestLine) text.clear();
  return signals;
}

Lifeline::Lifeline(int fd) : fd_(fd), guardian_(::getppid()) {}

void Lifeline::add_poll_fds(std::vector<pollfd>& fds) const {
  if (fd_ >= 0) fds.push_back({fd_, POLLIN, 0});
}

void Lifeline::handle(const std::vector<pollfd>& fds) {
  for (const pollfd& polled : fds) {
    if (fd_ < 0 || polled.fd != fd_ || polled.revents == 0) continue;
    std::array<char, 256> buffer;
    const ssize_t got = ::read(fd_, buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) {
      fd_ = -1;
      return pass_on(SIGTERM);
    }
    text_.append(buffer.data(), static_cast<std::size_t>(got));
    for (const int signal : signals_in(text_)) pass_on(signal);
  }
}

// If the guardian has exited, the agent is about to exit anyway, and the pid may have been reused.
void Lifeline::pass_on(int signal) const {
  if (::getppid() == guardian_) ::kill(guardian_, signal);
}

}  // namespace ddp::launch
