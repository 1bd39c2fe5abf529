#include "launcher/process/check_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/text.h"
#include "launcher/process/spawn.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kLongestTail = 8192;
constexpr std::size_t kLongestSaid = 300;
constexpr int kMostReads = 64;  // a pipe's worth: a process that it left behind may write forever

}  // namespace

std::string telling_line(const std::string& output) {
  std::string last, error;
  for (const std::string_view line : lines_of(output)) {
    const std::string text = trimmed(std::string(line));
    if (text.empty()) continue;
    last = text;
    if (text.starts_with("error:")) error = text;
  }
  std::string& told = error.empty() ? last : error;
  return printable(std::string_view(told).substr(0, kLongestSaid));
}

void CheckProcess::start(const WorkerSpec& spec) {
  forget();
  PipeEnds said = open_pipe("read what the preflight says");
  ::fcntl(said.read.get(), F_SETFL, O_NONBLOCK);
  output_ = std::move(said.read);
  try {
    const Descriptor nothing = open_null_device(O_RDONLY);
    const WorkerStdio stdio{nothing.get(), said.write.get(), said.write.get()};
    PendingSpawn pending = begin_spawn(spec, stdio, false);
    pid_ = pending.pid;
    if (const int error = finish_spawn(pending); error != 0) {
      throw LaunchError(
          kExitNotExecutable,
          fmt::format("cannot execute '{}': {}", spec.command.executable, error_text(error)));
    }
  } catch (const LaunchError&) {
    forget();
    throw;
  }
}

std::optional<CheckProcess::End> CheckProcess::take_exit(pid_t pid, const ExitStatus& exit) {
  if (pid == 0 || pid != pid_) return std::nullopt;
  ::kill(-pid_, SIGKILL);  // until it is reaped, its group id cannot be reused
  for (int i = 0; i < kMostReads && read_some(); ++i) {
  }
  End end{exit, telling_line(tail_)};
  forget();
  return end;
}

void CheckProcess::forget() {
  pid_ = 0;
  tail_.clear();
  output_.reset();
}

void CheckProcess::add_poll_fds(std::vector<pollfd>& fds) const {
  if (output_.get() >= 0) fds.push_back({output_.get(), POLLIN, 0});
}

void CheckProcess::handle(const std::vector<pollfd>&) { read_some(); }

// Returns whether there may be more.
bool CheckProcess::read_some() {
  if (output_.get() < 0) return false;
  std::array<char, 4096> buffer;
  const ssize_t got = ::read(output_.get(), buffer.data(), buffer.size());
  if (got < 0) return errno == EINTR;
  if (got == 0) {
    output_.reset();
    return false;
  }
  tail_.append(buffer.data(), static_cast<std::size_t>(got));
  if (tail_.size() > kLongestTail) tail_.erase(0, tail_.size() - kLongestTail);
  return true;
}

}  // namespace ddp::launch
