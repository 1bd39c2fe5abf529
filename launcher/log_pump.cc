#include "launcher/log_pump.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "launcher/console.h"
#include "launcher/line_splitter.h"
#include "launcher/worker_contract.h"
#include "launcher/worker_pipe.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kTail = 16 << 10;     // bytes of stderr kept for the report
constexpr std::size_t kBuffer = 256 << 10;  // bytes of one read
constexpr int kReadsPerTurn = 8;            // so that one loud worker does not starve signals

bool same_file(int a, int b) {
  struct stat first {
  }, second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
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
  LogFile file;
  LogFile filter_file;
  LineSplitter lines;
  std::string prefix;  // when it has no time in it
};

LogPump::LogPump() : out_(std::make_unique<ConsoleQueue>(STDOUT_FILENO)) {
  if (!same_file(STDOUT_FILENO, STDERR_FILENO))
    err_ = std::make_unique<ConsoleQueue>(STDERR_FILENO);
}

LogPump::~LogPump() {
  finish_round();
  flush_console();
}

ConsoleQueue& LogPump::console(bool is_stderr) const { return is_stderr && err_ ? *err_ : *out_; }

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
    case StreamMode::File: {
      if (is_stderr) stderr_files_[local_rank] = plan.file;
      LogFile file;
      file.open(plan.file, {}, /*truncate=*/true);
      return file.release();
    }
    case StreamMode::Pump:
      break;
  }
  Source& source = sources_.emplace_back();
  source.plan = plan;
  source.local_rank = local_rank;
  source.is_stderr = is_stderr;
  open_copy(source);
  const bool terminal =
      plan.console && !plan.by_line && ::isatty(is_stderr ? STDERR_FILENO : STDOUT_FILENO) == 1;
  const PipeEnds ends = terminal ? open_worker_terminal(STDERR_FILENO) : open_worker_pipe();
  source.fd = ends.read;
  return ends.write;
}

void LogPump::open_copy(Source& source) {
  const StreamPlan& plan = source.plan;
  if (!plan.file.empty()) source.file.open(plan.file, plan.rotation, /*truncate=*/true);
  if (!plan.filter_file.empty()) source.filter_file.open(plan.filter_file, {}, /*truncate=*/false);
  if (!plan.prefix.has_time()) plan.prefix.append_to(source.prefix, {{source.local_rank}}, {});
  if (plan.fold.count() == 0 || !plan.console) return;
  fold_prefix_ = plan.prefix;
  auto& folder = folders_[source.is_stderr ? 1 : 0];
  if (!folder) {
    folder = std::make_unique<LineFolder>(
        plan.fold, [this, is_stderr = source.is_stderr](const auto& ranks, std::string_view line) {
          ConsoleQueue& queue = console(is_stderr);
          scratch_.clear();
          fold_prefix_.append_to(scratch_, ranks, LinePrefix::Clock::now());
          queue.append_line(scratch_, line);
        });
  }
  folder->join(source.local_rank);
}

void LogPump::add_poll_fds(std::vector<pollfd>& fds) const {
  for (const auto* queue : {out_.get(), err_.get()}) {
    if (queue && queue->waiting_fd() >= 0) fds.push_back({queue->waiting_fd(), POLLOUT, 0});
  }
  for (const Source& source : sources_) {
    // Without a file nothing may be lost, so a console that is far behind slows its writers down.
    const bool hold =
        source.plan.console && source.plan.file.empty() && console(source.is_stderr).is_long();
    if (source.fd >= 0 && !hold) fds.push_back({source.fd, POLLIN, 0});
  }
}

std::optional<LogPump::Time> LogPump::deadline() const {
  std::optional<Time> first;
  for (const auto& folder : folders_) {
    const auto due = folder ? folder->deadline() : std::nullopt;
    if (due && (!first || *due < *first)) first = due;
  }
  return first;
}

void LogPump::handle(const std::vector<pollfd>& fds) {
  for (const pollfd& ready : fds) {
    if (ready.revents == 0) continue;
    for (Source& source : sources_) {
      if (source.fd != ready.fd) continue;
      for (int turn = 0; turn < kReadsPerTurn && read_some(source); ++turn) {
      }
    }
  }
  settle();
}

void LogPump::settle() {
  for (const auto& folder : folders_) {
    if (folder) folder->settle(Time::clock::now());
  }
  for (auto* queue : {out_.get(), err_.get()}) {
    if (queue) queue->write_some();
  }
}

// False when there is nothing to read now.
bool LogPump::read_some(Source& source) {
  buffer_.resize(kBuffer);
  const ssize_t got = ::read(source.fd, buffer_.data(), buffer_.size());
  if (got > 0) {
    take(source, std::string_view(buffer_.data(), static_cast<std::size_t>(got)));
    return true;
  }
  if (got < 0 && errno == EINTR) return true;
  if (got == 0 || errno != EAGAIN) close_source(source);  // EIO: nobody has the terminal any more
  return false;
}

void LogPump::take(Source& source, std::string_view text) {
  if (source.file.is_open()) write_file(source.file, text);
  if (source.is_stderr) {
    std::string& tail = stderr_tail_[source.local_rank];
    tail += text.substr(text.size() - std::min(text.size(), kTail));
    if (tail.size() > 2 * kTail) tail.erase(0, tail.size() - kTail);
  }
  if (source.plan.by_line) {
    for (std::string_view line; source.lines.next(text, line);) emit_line(source, line);
  } else if (source.plan.console) {
    console(source.is_stderr).append(text);
  }
}

void LogPump::emit_line(Source& source, std::string_view line) {
  if (source.plan.console) show_line(source, line);
  if (source.filter_file.is_open()) copy_if_wanted(source, line);
}

void LogPump::show_line(Source& source, std::string_view line) {
  ConsoleQueue& queue = console(source.is_stderr);
  if (queue.is_full()) {
    ++skipped_lines_;
  } else if (source.plan.fold.count() > 0) {
    folders_[source.is_stderr ? 1 : 0]->add(source.local_rank, line, Time::clock::now());
  } else {
    queue.append_line(prefix_of(source), line);
  }
}

const std::string& LogPump::prefix_of(const Source& source) {
  if (!source.plan.prefix.has_time()) return source.prefix;
  scratch_.clear();
  source.plan.prefix.append_to(scratch_, {{source.local_rank}}, LinePrefix::Clock::now());
  return scratch_;
}

void LogPump::copy_if_wanted(Source& source, std::string_view line) {
  const auto& filters = source.plan.filters;
  const bool wanted = std::any_of(filters.begin(), filters.end(), [&](const std::string& filter) {
    return line.find(filter) != std::string::npos;
  });
  if (wanted) write_file(source.filter_file, fmt::format("{}{}\n", prefix_of(source), line));
}

void LogPump::write_file(LogFile& file, std::string_view text) {
  if (file.write(text)) return;
  note(fmt::format("cannot write '{}': {}; what follows is missing there", file.path(),
                   file.error()));
}

void LogPump::close_source(Source& source) {
  if (const auto rest = source.lines.rest(); !rest.empty()) emit_line(source, rest);
  const auto& folder = folders_[source.is_stderr ? 1 : 0];
  if (folder) folder->leave(source.local_rank);
  if (source.fd >= 0) ::close(source.fd);
  source.fd = -1;
  source.file.close();
  source.filter_file.close();
}

void LogPump::finish_round() {
  for (Source& source : sources_) {
    while (source.fd >= 0 && read_some(source)) {
    }
    close_source(source);
  }
  for (const auto& folder : folders_) {
    if (folder) folder->flush();
  }
  sources_.clear();
  for (const auto& [local_rank, path] : stderr_files_) stderr_tail_[local_rank] = end_of_file(path);
  if (skipped_lines_ > 0) {
    note(fmt::format("{} lines were not shown, the console was too slow; the log files have them",
                     skipped_lines_));
  }
  skipped_lines_ = 0;
  settle();
}

void LogPump::flush_console() {
  for (auto* queue : {out_.get(), err_.get()}) {
    if (queue) queue->flush();
  }
}

std::string LogPump::last_stderr(int local_rank) const {
  const auto found = stderr_tail_.find(local_rank);
  return found == stderr_tail_.end() ? "" : found->second;
}

void LogPump::note(const std::string& line) { console(true).add("ddp-run: " + line + "\n"); }

}  // namespace ddp::launch
