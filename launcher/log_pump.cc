#include "launcher/log_pump.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "launcher/console.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kTail = 16 << 10;         // bytes of stderr kept for the report
constexpr std::size_t kLongestLine = 16 << 20;  // a line is cut only beyond this
constexpr int kReadsPerTurn = 16;               // so that one loud worker does not starve signals

bool same_file(int a, int b) {
  struct stat first {
  }, second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

int open_log(const std::string& path, int how) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | how, 0644);
  if (fd < 0) {
    throw LaunchError(kExitFailed,
                      fmt::format("cannot write the log file '{}': {}", path, error_text(errno)));
  }
  return fd;
}

struct Ends {
  int read = -1;
  int write = -1;
};

Ends open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw LaunchError(kExitFailed,
                      fmt::format("cannot make a pipe for a worker's output: {}; tip: ulimit -n",
                                  error_text(errno)));
  }
  return {ends[0], ends[1]};
}

// A worker that found a terminal as its stderr still finds one; progress bars look as they always
// did.
Ends open_terminal_like(int original) {
  Ends ends;
  ends.read = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  char name[128];
  if (ends.read < 0 || ::grantpt(ends.read) != 0 || ::unlockpt(ends.read) != 0 ||
      ::ptsname_r(ends.read, name, sizeof name) != 0 ||
      (ends.write = ::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0) {
    if (ends.read >= 0) ::close(ends.read);
    return open_pipe();
  }
  termios settings{};
  if (::tcgetattr(ends.write, &settings) == 0) {
    ::cfmakeraw(&settings);  // bytes pass as they are; the real terminal does the rest
    ::tcsetattr(ends.write, TCSANOW, &settings);
  }
  winsize size{};
  if (::ioctl(original, TIOCGWINSZ, &size) == 0) ::ioctl(ends.write, TIOCSWINSZ, &size);
  return ends;
}

std::string end_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<std::streamoff>(file.tellg());
  if (!file || size <= 0) return "";
  const auto wanted = std::min<std::streamoff>(size, kTail);
  std::string text(static_cast<std::size_t>(wanted), '\0');
  file.seekg(size - wanted);
  file.read(text.data(), wanted);
  return text;
}

}  // namespace

struct LogPump::Source {
  StreamPlan plan;
  int local_rank = 0;
  bool is_stderr = false;
  int fd = -1;
  int file = -1;
  int filter_file = -1;
  std::string line;           // not yet ended
  bool after_return = false;  // the last byte was '\r': a '\n' now ends no further line
};

LogPump::LogPump() : out_(std::make_unique<ConsoleQueue>(STDOUT_FILENO)) {
  if (!same_file(STDOUT_FILENO, STDERR_FILENO))
    err_ = std::make_unique<ConsoleQueue>(STDERR_FILENO);
}

LogPump::~LogPump() { finish_round(); }

ConsoleQueue& LogPump::console(bool is_stderr) { return is_stderr && err_ ? *err_ : *out_; }

int LogPump::open_stream(const StreamPlan& plan, int local_rank, bool is_stderr) {
  if (is_stderr) {
    stderr_tail_[local_rank].clear();
    stderr_files_.erase(local_rank);
  }
  switch (plan.mode) {
    case StreamMode::Inherit:
      return -1;
    case StreamMode::Discard:
      return ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    case StreamMode::File:
      if (is_stderr) stderr_files_[local_rank] = plan.file;
      return open_log(plan.file, O_TRUNC);
    case StreamMode::Pump:
      break;
  }
  Source& source = sources_.emplace_back();
  source.plan = plan;
  source.local_rank = local_rank;
  source.is_stderr = is_stderr;
  if (!plan.file.empty()) source.file = open_log(plan.file, O_TRUNC);
  if (!plan.filter_file.empty()) source.filter_file = open_log(plan.filter_file, 0);
  const bool terminal =
      plan.console && !plan.by_line && ::isatty(is_stderr ? STDERR_FILENO : STDOUT_FILENO) == 1;
  const Ends ends = terminal ? open_terminal_like(STDERR_FILENO) : open_pipe();
  ::fcntl(ends.read, F_SETFL, O_NONBLOCK);
  source.fd = ends.read;
  return ends.write;
}

void LogPump::add_poll_fds(std::vector<pollfd>& fds) const {
  for (const auto* queue : {out_.get(), err_.get()}) {
    if (queue && queue->waiting_fd() >= 0) fds.push_back({queue->waiting_fd(), POLLOUT, 0});
  }
  for (const Source& source : sources_) {
    const ConsoleQueue& queue = source.is_stderr && err_ ? *err_ : *out_;
    // Without a file nothing may be lost, so a console that is far behind slows its writers down.
    const bool hold = source.plan.console && source.file < 0 && queue.is_full();
    if (source.fd >= 0 && !hold) fds.push_back({source.fd, POLLIN, 0});
  }
}

void LogPump::handle(const std::vector<pollfd>& fds) {
  for (const pollfd& ready : fds) {
    if (ready.revents == 0) continue;
    for (auto* queue : {out_.get(), err_.get()}) {
      if (queue && queue->waiting_fd() == ready.fd) queue->write_some();
    }
    for (Source& source : sources_) {
      if (source.fd != ready.fd) continue;
      for (int turn = 0; turn < kReadsPerTurn && read_some(source); ++turn) {
      }
    }
  }
}

// False when there is nothing to read now.
bool LogPump::read_some(Source& source) {
  char buffer[64 << 10];
  const ssize_t got = ::read(source.fd, buffer, sizeof buffer);
  if (got > 0) {
    take(source, std::string_view(buffer, static_cast<std::size_t>(got)));
    return true;
  }
  if (got < 0 && errno == EINTR) return true;
  if (got == 0 || errno != EAGAIN) close_source(source);  // EIO: nobody has the terminal any more
  return false;
}

void LogPump::take(Source& source, std::string_view text) {
  if (source.file >= 0) write_fully(source.file, text);
  if (source.is_stderr) {
    std::string& tail = stderr_tail_[source.local_rank];
    tail += text;
    if (tail.size() > 2 * kTail) tail.erase(0, tail.size() - kTail);
  }
  if (source.plan.by_line) {
    take_lines(source, text);
  } else if (source.plan.console) {
    console(source.is_stderr).add(text);
  }
}

// A progress bar's '\r' ends a line, too.
void LogPump::take_lines(Source& source, std::string_view text) {
  while (!text.empty()) {
    if (source.after_return && text.front() == '\n') text.remove_prefix(1);
    source.after_return = false;
    const auto end = text.find_first_of("\n\r");
    source.line += text.substr(0, end);
    if (end == std::string_view::npos) break;
    emit_line(source, source.line);
    source.line.clear();
    source.after_return = text[end] == '\r';
    text.remove_prefix(end + 1);
  }
  if (source.line.size() > kLongestLine) {
    emit_line(source, source.line);
    source.line.clear();
  }
}

void LogPump::emit_line(Source& source, std::string_view line) {
  const std::string whole = fmt::format("{}{}\n", source.plan.prefix, line);
  ConsoleQueue& queue = console(source.is_stderr);
  if (source.plan.console && queue.is_full()) {
    ++skipped_lines_;
  } else if (source.plan.console) {
    queue.add(whole);
  }
  if (source.filter_file < 0) return;
  const bool wanted = std::any_of(
      source.plan.filters.begin(), source.plan.filters.end(),
      [&](const std::string& filter) { return line.find(filter) != std::string::npos; });
  if (wanted) write_fully(source.filter_file, whole);
}

void LogPump::close_source(Source& source) {
  if (!source.line.empty()) emit_line(source, source.line);
  source.line.clear();
  for (int* fd : {&source.fd, &source.file, &source.filter_file}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
}

void LogPump::finish_round() {
  for (Source& source : sources_) {
    while (source.fd >= 0 && read_some(source)) {
    }
    close_source(source);
  }
  sources_.clear();
  for (const auto& [local_rank, path] : stderr_files_) stderr_tail_[local_rank] = end_of_file(path);
  for (auto* queue : {out_.get(), err_.get()}) {
    if (queue) queue->flush();
  }
  if (skipped_lines_ > 0) {
    note(fmt::format("{} lines were not shown, the console was too slow; the log files have them",
                     skipped_lines_));
  }
  skipped_lines_ = 0;
}

std::string LogPump::last_stderr(int local_rank) const {
  const auto found = stderr_tail_.find(local_rank);
  return found == stderr_tail_.end() ? "" : found->second;
}

void LogPump::note(const std::string& line) { console(true).add("ddp-run: " + line + "\n"); }

}  // namespace ddp::launch
