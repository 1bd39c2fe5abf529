#include "launcher/logs/log_pump.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <tuple>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/text.h"
#include "launcher/logs/line_splitter.h"
#include "launcher/logs/worker_pipe.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kBuffer = 256 << 10;  // bytes of one read
constexpr int kReadsPerTurn = 8;            // so that a chatty worker does not starve signals

// A writer that waits for room has left unread data.
bool has_unread(int fd) {
  pollfd readable{fd, POLLIN, 0};
  return ::poll(&readable, 1, 0) == 1;
}

}  // namespace

struct LogPump::Source {
  StreamPlan plan;
  int local_rank = 0;
  bool is_stderr = false;
  Descriptor fd;
  bool held = false;        // not read now: the console is far behind
  bool unfinished = false;  // the last read ended within a line
  FileWriter::FilePtr file;
  FileWriter::FilePtr filter_file;
  LineSplitter filtered;          // for filter_file
  ConsoleLines* shown = nullptr;  // by line; else the console gets bytes, if any

  SharedConsole::Writer writer() const { return {local_rank, is_stderr}; }
};

LogPump::LogPump() : out_(std::make_unique<ConsoleQueue>(STDOUT_FILENO, &console_files_[0])) {
  if (!same_file(STDOUT_FILENO, STDERR_FILENO))
    err_ = std::make_unique<ConsoleQueue>(STDERR_FILENO, &console_files_[1]);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO})
    shared_[fd == STDERR_FILENO ? 1 : 0] = SharedConsole(::isatty(fd) == 1);
}

LogPump::~LogPump() {
  finish_round();
  flush(Patience::kSeconds);
}

ConsoleQueue& LogPump::console(bool is_stderr) const { return is_stderr && err_ ? *err_ : *out_; }

std::list<ConsoleLines>& LogPump::shown_on(bool is_stderr) {
  return shown_[is_stderr && err_ ? 1 : 0];
}

Descriptor LogPump::open_stream(const StreamPlan& plan, int local_rank, bool is_stderr) {
  if (is_stderr) {
    stderr_tail_[local_rank].clear();
    first_output_.erase(local_rank);
    stderr_files_.erase(local_rank);
  }
  switch (plan.mode) {
    case StreamMode::kInherit:
      return Descriptor();
    case StreamMode::kDiscard:
      return open_null_device(O_WRONLY);
    case StreamMode::kFile: {
      if (is_stderr) {
        auto& redirected = stderr_files_[local_rank] = std::make_shared<Redirected>();
        redirected->path = plan.file;
      }
      return take_log(plan.file, {}, /*truncate=*/true)->release();
    }
    case StreamMode::kPump:
      break;
  }
  Source& source = sources_.emplace_back();
  source.plan = plan;
  source.local_rank = local_rank;
  source.is_stderr = is_stderr;
  if (plan.console && !plan.by_line) shared(is_stderr).join(source.writer());
  open_copy(source);
  const bool terminal =
      plan.console && !plan.by_line && ::isatty(is_stderr ? STDERR_FILENO : STDOUT_FILENO) == 1;
  PipeEnds ends = terminal ? open_worker_terminal(is_stderr ? STDERR_FILENO : STDOUT_FILENO)
                           : open_worker_pipe();
  source.fd = std::move(ends.read);
  return std::move(ends.write);
}

void LogPump::resize_terminals() {
  for (const Source& source : sources_)
    copy_window_size(source.is_stderr ? STDERR_FILENO : STDOUT_FILENO, source.fd.get());
}

void LogPump::open_copy(Source& source) {
  const StreamPlan& plan = source.plan;
  if (!plan.file.empty()) source.file = open_log(plan.file, plan.rotation, /*truncate=*/true);
  if (!plan.filter_file.empty())
    source.filter_file = open_log(plan.filter_file, {}, /*truncate=*/false);
  if (!plan.by_line || !plan.console) return;
  auto& shown = shown_on(source.is_stderr);
  shown.emplace_back(plan, source.local_rank, console(source.is_stderr),
                     folding_for(plan, source.is_stderr), files_, source.file);
  source.shown = &shown.back();
}

RepeatFolding* LogPump::folding_for(const StreamPlan& plan, bool is_stderr) {
  if (plan.fold.count() == 0) return nullptr;
  fold_prefix_ = plan.prefix;
  auto& folding = folding_[is_stderr ? 1 : 0];
  if (!folding) {
    const auto show = [this, is_stderr](const std::vector<int>& ranks, std::string_view line) {
      scratch_.clear();
      fold_prefix_.append_to(scratch_, ranks, LinePrefix::Clock::now());
      console(is_stderr).append_line(scratch_, line);
    };
    folding = std::make_unique<RepeatFolding>(plan.fold, show);
  }
  return folding.get();
}

// What a slow console or disk would lose, or keep in memory without bound: its writers wait.
bool LogPump::must_wait(const Source& source) const {
  const ConsoleQueue& shown_on = console(source.is_stderr);
  const bool only_shown =
      source.plan.file.empty() || (source.plan.rotation.max_bytes > 0 && shown_on.file());
  if (source.plan.console && only_shown && shown_on.is_long()) return true;
  return (source.file || source.filter_file) && files_.is_long();
}

void LogPump::add_poll_fds(std::vector<pollfd>& fds, bool wants_progress) {
  for (const auto* queue : {out_.get(), err_.get()}) {
    if (queue && queue->waiting_fd() >= 0) fds.push_back({queue->waiting_fd(), POLLOUT, 0});
  }
  for (Source& source : sources_) {
    if (source.fd.get() < 0) continue;
    const bool hold = must_wait(source);
    wants_progress = wants_progress || hold;
    if (!hold) fds.push_back({source.fd.get(), POLLIN, 0});
    if (source.held && !hold && has_unread(source.fd.get())) held_up_until_ = Clock::now();
    source.held = hold;
  }
  for (const auto& shown : shown_) {
    wants_progress =
        wants_progress || std::any_of(shown.begin(), shown.end(),
                                      [](const ConsoleLines& lines) { return lines.is_behind(); });
  }
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    if (const int fd = writers()[i]->wait_fd(wants_progress, seen_[i]); fd >= 0)
      fds.push_back({fd, POLLIN, 0});
  }
}

bool LogPump::needs_turn() const {
  return std::any_of(std::begin(shown_), std::end(shown_), [](const auto& shown) {
    return std::any_of(shown.begin(), shown.end(),
                       [](const ConsoleLines& lines) { return lines.needs_turn(); });
  });
}

std::optional<LogPump::Time> LogPump::deadline() const {
  if (needs_turn()) return Time::clock::now();
  std::optional<Time> first;
  if (backlog_since_ && !backlog_noted_) first = *backlog_since_ + kNotableBacklog;
  for (const auto& folding : folding_) {
    if (folding) first = earlier(first, folding->deadline());
  }
  return first;
}

bool LogPump::is_console_waiting() const {
  return out_->waiting_fd() >= 0 || (err_ && err_->waiting_fd() >= 0);
}

// A worker ends a line, such as a progress bar on stderr, before it prints on its other stream.
void LogPump::sort_sources() {
  const auto place = [](const Source& source) {
    return std::tuple(source.local_rank, !source.unfinished, source.is_stderr);
  };
  const auto before = [&](const Source& a, const Source& b) { return place(a) < place(b); };
  if (!std::ranges::is_sorted(sources_, before)) sources_.sort(before);
}

void LogPump::handle(const std::vector<pollfd>& fds) {
  std::vector<int> ready;
  for (const pollfd& one : fds) {
    if (one.revents != 0) ready.push_back(one.fd);
  }
  sort_sources();
  for (Source& source : sources_) {
    if (std::ranges::find(ready, source.fd.get()) == ready.end()) continue;
    for (int turn = 0; turn < kReadsPerTurn && !must_wait(source); ++turn) {
      if (!read_some(source)) break;
    }
  }
  settle();
}

// What the writers get done from here on wakes the next poll.
void LogPump::settle() {
  for (std::size_t i = 0; i < seen_.size(); ++i) seen_[i] = writers()[i]->progress();
  note_failures();
  note_backlog();
  write_consoles();
  for (auto& shown : shown_) show_more(shown);
  for (const auto& folding : folding_) {
    if (folding) folding->settle(Time::clock::now());
  }
  write_consoles();
}

void LogPump::note_failures() {
  for (FileWriter& writer : console_files_) writer.take_failures();  // see console_error()
  for (const FileWriter::Failure& failure : files_.take_failures()) {
    for (auto& shown : shown_) {
      for (ConsoleLines& lines : shown) lines.absorb(failure);
    }
    note(fmt::format("cannot write '{}': {}; the rest of this log is missing", failure.name,
                     error_text(failure.error)));
  }
}

void LogPump::show_more(std::list<ConsoleLines>& shown) {
  for (auto lines = shown.begin(); lines != shown.end();) {
    for (int turn = 0; turn < kReadsPerTurn && lines->is_behind(); ++turn) {
      lines->catch_up();
      write_consoles();
    }
    if (lines->has_ended() && lines->is_behind()) return;  // a new round's lines come after it
    if (lines->is_done()) skipped_lines_ += lines->skipped();
    lines = lines->is_done() ? shown.erase(lines) : std::next(lines);
  }
}

void LogPump::write_consoles() {
  for (auto* queue : {out_.get(), err_.get()}) {
    if (queue) queue->write_some();
  }
  if (out_->reader_has_exited() && err_ && !std::exchange(reader_is_noted_, true))
    note("the reader of standard output has exited; the job continues without it");
}

// False when there is nothing to read now.
bool LogPump::read_some(Source& source) {
  if (buffer_.empty()) buffer_ = files_.spare_buffer();
  buffer_.resize(kBuffer);
  const ssize_t got = ::read(source.fd.get(), buffer_.data(), buffer_.size());
  if (got > 0) {
    const auto size = static_cast<std::size_t>(got);
    take(source, std::string_view(buffer_.data(), size));
    if (source.file) write_file(source, size);
    return true;
  }
  if (got < 0 && errno == EINTR) return true;
  if (got == 0 || errno != EAGAIN) close_source(source);  // EIO: the terminal is closed
  return false;
}

void LogPump::take(Source& source, std::string_view text) {
  source.unfinished = !text.ends_with('\n');
  const auto now = Clock::now();
  first_output_.try_emplace(source.local_rank, now);
  last_output_[source.local_rank] = now;
  if (source.is_stderr) {
    std::string& tail = stderr_tail_[source.local_rank];
    tail += text.substr(text.size() - std::min(text.size(), kTail));
    if (tail.size() > 2 * kTail) tail.erase(0, tail.size() - kTail);
  }
  if (source.shown) {
    source.shown->take(text, /*wait=*/shown_on(source.is_stderr).front().has_ended());
  } else if (source.plan.console) {
    console(source.is_stderr).append(shared(source.is_stderr).take(source.writer(), text));
  }
  if (source.filter_file) {
    for (std::string_view line; source.filtered.next(text, line);) copy_if_wanted(source, line);
  }
}

// What fills most of the buffer is not copied once more.
void LogPump::write_file(Source& source, std::size_t size) {
  if (size < kBuffer / 2) return files_.append(source.file, std::string_view(buffer_.data(), size));
  buffer_.resize(size);
  files_.append(source.file, std::exchange(buffer_, {}));
}

void LogPump::copy_if_wanted(Source& source, std::string_view line) {
  const auto& filters = source.plan.filters;
  const bool wanted = std::any_of(filters.begin(), filters.end(), [&](const std::string& filter) {
    return line.find(filter) != std::string::npos;
  });
  if (!wanted) return;
  scratch_.clear();
  source.plan.prefix.append_to(scratch_, {{source.local_rank}}, LinePrefix::Clock::now());
  files_.append(source.filter_file, fmt::format("{}{}\n", scratch_, line));
}

void LogPump::close_source(Source& source) {
  if (source.filter_file) {
    if (const auto rest = source.filtered.rest(); !rest.empty()) copy_if_wanted(source, rest);
  }
  if (source.shown) source.shown->end();
  source.shown = nullptr;
  if (source.fd.get() >= 0 && source.plan.console && !source.plan.by_line)
    console(source.is_stderr).append(shared(source.is_stderr).leave(source.writer()));
  source.fd.reset();
  files_.close(source.file);
  files_.close(source.filter_file);
}

void LogPump::finish_round() {
  sort_sources();
  for (Source& source : sources_) {
    while (source.fd.get() >= 0 && read_some(source)) {
    }
    close_source(source);
  }
  sources_.clear();
  last_output_.clear();
  read_redirected();
  settle();
  if (skipped_lines_ > 0) {
    note(fmt::format("the console was too slow: {} skipped; see the log files",
                     plural(skipped_lines_, "line")));
  }
  skipped_lines_ = 0;
}

std::function<void(const std::string&)> LogPump::open_file(std::string name,
                                                           FileWriter::Write write) {
  const auto file = FileWriter::open(std::move(name), std::move(write));
  return [this, file](const std::string& text) { files_.append(file, text); };
}

void LogPump::drop_console() {
  for (auto& shown : shown_) shown.clear();
  for (auto* queue : {out_.get(), err_.get()}) {
    if (queue) queue->drop();
  }
}

std::string LogPump::last_stderr(int local_rank) const {
  const auto found = stderr_tail_.find(local_rank);
  return found == stderr_tail_.end() ? "" : found->second;
}

std::optional<Clock::time_point> LogPump::first_output(int local_rank) const {
  const auto found = first_output_.find(local_rank);
  if (found == first_output_.end()) return std::nullopt;
  return found->second;
}

Clock::time_point LogPump::last_output(int local_rank) const {
  const auto found = last_output_.find(local_rank);
  return found == last_output_.end() ? Clock::time_point{} : found->second;
}

std::set<int> LogPump::held_up() const {
  std::set<int> ranks;
  for (const Source& source : sources_) {
    if (source.held && source.fd.get() >= 0 && has_unread(source.fd.get()))
      ranks.insert(source.local_rank);
  }
  return ranks;
}

Clock::time_point LogPump::held_up_until() const {
  return held_up().empty() ? held_up_until_ : Clock::now();
}

int LogPump::console_error() const {
  if (console_given_up_) return EIO;
  return out_->error() != 0 || !err_ ? out_->error() : err_->error();
}

void LogPump::note(const std::string& line) { print("ddp-run: " + line + "\n"); }

void LogPump::print(const std::string& text) { console(true).add(shared(true).take_note(text)); }

}  // namespace ddp::launch
