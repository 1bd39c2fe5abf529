#include "launcher/cluster/host_runner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/base/clock.h"
#include "launcher/base/errors.h"
#include "launcher/base/signal_names.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/poll_handler.h"
#include "launcher/base/worker.h"
#include "launcher/logs/console_queue.h"
#include "launcher/logs/line_splitter.h"
#include "launcher/process/spawn.h"
#include "launcher/process/stop_requests.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr int kSshFailed = 255;
// After one host failed, the others exit on their own if they had met.
constexpr auto kOthersEnd = std::chrono::seconds(3);
// A connection that ssh shares with later ones may keep the pipes open forever.
constexpr auto kLastOutput = std::chrono::seconds(1);
constexpr int kMostStops = 3;  // hosts kill at the second; the third does not wait for them
constexpr auto kConsolePatience = std::chrono::seconds(5);

struct HostStream {
  Descriptor fd{};
  LineSplitter lines{};
  ConsoleQueue* console = nullptr;
};

struct RunningHost {
  std::string label;
  std::string destination;
  pid_t pid = 0;
  Descriptor input{};
  std::array<HostStream, 2> output{};
  std::optional<Clock::time_point> ended{};
  bool said_anything = false;

  bool is_over() const { return ended && output[0].fd.get() < 0 && output[1].fd.get() < 0; }
};

class HostRunner {
 public:
  HostRunner(const HostsPlan& plan, const SignalMailbox& signals)
      : signals_(signals),
        signal_fd_(signals.open_fd()),
        min_nodes_(plan.min_nodes),
        out_(STDOUT_FILENO),
        err_(STDERR_FILENO),
        one_console_(same_file(STDOUT_FILENO, STDERR_FILENO)) {
    for (const HostCommand& host : plan.hosts) {
      start(host, plan.environment);
      if (!plan.token.empty()) write_line(hosts_.back().input.get(), plan.token);
    }
  }

  int run() {
    while (!is_over()) take_turn();
    flush();
    if (interrupted_ != 0) return kExitSignalBase + interrupted_;
    // A host may learn that another one leaves before it gets the stop request itself.
    const bool has_own = std::any_of(codes_.begin(), codes_.end(),
                                     [](int c) { return c != kExitDone && c != kExitFailed; });
    if (requests_.count() > 0 && has_own) std::erase(codes_, kExitFailed);
    return exit_code_of_hosts(codes_, min_nodes_);
  }

 private:
  bool is_over() const {
    return std::all_of(hosts_.begin(), hosts_.end(), [](const auto& h) { return h.is_over(); });
  }

  void start(const HostCommand& host, const Environment& environment) {
    constexpr const char* kPurpose = "start ssh";
    PipeEnds in = open_pipe(kPurpose), out = open_pipe(kPurpose), err = open_pipe(kPurpose);
    for (const Descriptor* ours : {&in.write, &out.read, &err.read})
      ::fcntl(ours->get(), F_SETFL, O_NONBLOCK);
    WorkerSpec spec;
    spec.command = host.command;
    spec.environment = environment;
    const WorkerStdio theirs{in.read.get(), out.write.get(), err.write.get()};
    PendingSpawn pending = begin_spawn(spec, theirs, signals_.hangup_ignored());
    RunningHost running{.label = host.label,
                        .destination = host.destination,
                        .pid = pending.pid,
                        .input = std::move(in.write)};
    running.output[0] = {.fd = std::move(out.read), .console = &out_};
    running.output[1] = {.fd = std::move(err.read), .console = one_console_ ? &out_ : &err_};
    hosts_.push_back(std::move(running));
    if (const int error = finish_spawn(pending); error != 0) {
      throw LaunchError(
          kExitNotExecutable,
          fmt::format("cannot execute {}: {}", host.command.executable, error_text(error)));
    }
  }

  static void close_all(RunningHost& host) {
    for (Descriptor* fd : {&host.input, &host.output[0].fd, &host.output[1].fd}) fd->reset();
  }

  void take_turn() {
    std::vector<pollfd> fds{{signal_fd_.get(), POLLIN, 0}};
    for (const ConsoleQueue* console : {&out_, &err_}) {
      if (console->waiting_fd() >= 0) fds.push_back({console->waiting_fd(), POLLOUT, 0});
    }
    for (const RunningHost& host : hosts_) {
      for (const HostStream& stream : host.output) {
        if (stream.fd.get() >= 0 && !stream.console->is_long())
          fds.push_back({stream.fd.get(), POLLIN, 0});
      }
    }
    poll_until(fds, next_deadline(), "cannot wait for the hosts");
    for (ConsoleQueue* console : {&out_, &err_}) console->write_some();
    for (RunningHost& host : hosts_) {
      for (HostStream& stream : host.output) read_some(host, stream);
    }
    take_signals();
    keep_time();
  }

  std::optional<Clock::time_point> next_deadline() const {
    auto next = stop_others_at_;
    for (const RunningHost& host : hosts_) {
      if (host.ended && !host.is_over()) next = earlier(next, *host.ended + kLastOutput);
    }
    return next;
  }

  void read_some(RunningHost& host, HostStream& stream) {
    if (stream.fd.get() < 0 || stream.console->is_long()) return;
    std::array<char, 64 << 10> buffer;
    const ssize_t got = ::read(stream.fd.get(), buffer.data(), buffer.size());
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    const std::string prefix = host.label + ": ";
    if (got > 0) {
      host.said_anything = true;
      std::string_view text(buffer.data(), static_cast<std::size_t>(got));
      for (std::string_view line; stream.lines.next(text, line);)
        stream.console->append_line(prefix, line);
    } else {
      const auto rest = stream.lines.rest();
      if (!rest.empty()) stream.console->append_line(prefix, rest);
      stream.fd.reset();
    }
    stream.console->write_some();
  }

  void take_signals() {
    signalfd_siginfo info{};
    bool nothing_yet = true;
    while (::read(signal_fd_.get(), &info, sizeof info) == sizeof info) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) {
        reap();
        continue;
      }
      if (signal == SIGWINCH && !signals_.ends_job(signal)) continue;  // no terminal there
      if (nothing_yet) requests_.nothing_pending();
      nothing_yet = false;
      const auto origin =
          origin_of(signal, info.ssi_code, static_cast<pid_t>(info.ssi_pid), info.ssi_int);
      const bool ends_job = signals_.ends_job(signal);
      if (ends_job && !requests_.add(origin, Clock::now())) continue;
      tell_all(signal);
      if (requests_.count() >= kMostStops) give_up(signal);
      if (signal == SIGTSTP && !ends_job) ::raise(SIGSTOP);
    }
  }

  // ddp-run there reads it from standard input, as ssh does not forward signals.
  void tell_all(int signal) {
    for (const RunningHost& host : hosts_) {
      if (host.input.get() >= 0) write_line(host.input.get(), signal_name(signal));
    }
  }

  // A host that no longer reads ends with its connection.
  static void write_line(int input, const std::string& text) {
    const std::string line = text + "\n";
    [[maybe_unused]] const auto told = ::write(input, line.data(), line.size());
  }

  void give_up(int signal) {
    interrupted_ = signal;
    for (const RunningHost& host : hosts_) {
      if (!host.ended) ::kill(host.pid, SIGKILL);
    }
  }

  void reap() {
    for (RunningHost& host : hosts_) {
      int status = 0;
      if (host.ended || ::waitpid(host.pid, &status, WNOHANG) != host.pid) continue;
      host.ended = Clock::now();
      host.input.reset();
      for (HostStream& stream : host.output) read_some(host, stream);
      explain_end(host, status);
      ended(exit_code_of(status));
    }
  }

  // ddp-run on the host reports why it exits; ssh may not.
  void explain_end(const RunningHost& host, int status) {
    const int code = exit_code_of(status);
    std::string what;
    if (WIFSIGNALED(status) && interrupted_ == 0)
      what = "ssh was killed by " + signal_name(WTERMSIG(status));
    else if (code == kSshFailed)
      what = "ssh ended with 255: it could not connect or lost the connection";
    else if (code != 0 && !host.said_anything && requests_.count() == 0 && !stopping_)
      what = fmt::format("ssh ended with {} before ddp-run on the host said anything", code);
    if (!what.empty())
      note(fmt::format("error: {}: {}; try: ssh {} true", host.label, what, host.destination));
  }

  void ended(int code) {
    codes_.push_back(code);
    const auto failed = std::count_if(codes_.begin(), codes_.end(), [](int c) { return c != 0; });
    const auto left = static_cast<int>(hosts_.size()) - static_cast<int>(failed);
    if (code == 0 || left >= min_nodes_ || stopping_) return;
    const bool never_began = code == kSshFailed || code == kExitUsage || code == kExitNotFound ||
                             code == kExitNotExecutable;
    const auto at = Clock::now() + (never_began ? Clock::duration::zero() : kOthersEnd);
    stop_others_at_ = earlier(stop_others_at_, at);
  }

  void note(const std::string& line) {
    ConsoleQueue& console = one_console_ ? out_ : err_;
    console.add(line + "\n");
  }

  void keep_time() {
    const auto now = Clock::now();
    if (stop_others_at_ && now >= *stop_others_at_) {
      stop_others_at_.reset();
      stopping_ = true;
      tell_all(SIGTERM);
    }
    for (RunningHost& host : hosts_) {
      if (host.ended && !host.is_over() && now >= *host.ended + kLastOutput) close_all(host);
    }
  }

  void flush() {
    for (ConsoleQueue* console : {&out_, &err_}) {
      while (console->waiting_fd() >= 0) {
        pollfd writable{console->waiting_fd(), POLLOUT, 0};
        const timespec limit = time_until(Clock::now() + kConsolePatience);
        if (::ppoll(&writable, 1, &limit, nullptr) <= 0) break;
        console->write_some();
      }
    }
  }

  const SignalMailbox& signals_;
  Descriptor signal_fd_;
  int min_nodes_;
  ConsoleQueue out_;
  ConsoleQueue err_;
  bool one_console_;
  std::deque<RunningHost> hosts_;
  std::vector<int> codes_;  // in the order of ends
  StopRequests requests_;
  std::optional<Clock::time_point> stop_others_at_;
  bool stopping_ = false;
  int interrupted_ = 0;
};

}  // namespace

int exit_code_of_hosts(const std::vector<int>& codes, int min_nodes) {
  const auto done = std::count(codes.begin(), codes.end(), 0);
  if (done >= min_nodes) return kExitDone;
  const auto failed = std::find_if(codes.begin(), codes.end(), [](int c) { return c != 0; });
  return failed == codes.end() ? kExitFailed : *failed;
}

int run_on_hosts(const HostsPlan& plan, const SignalMailbox& signals) {
  return HostRunner(plan, signals).run();
}

}  // namespace ddp::launch
