// LogPump where consoles and disks are slow: reports that workers wait for them, and at the end of
// the job waits itself, within limits. What the thread of the log files does in its place.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "launcher/base/system/regular_file.h"
#include "launcher/logs/log_pump.h"

namespace ddp::launch {
namespace {

constexpr int kPatienceMs = 5000;  // for which a console or a disk may stall

std::shared_ptr<LogFile> opened_log(const std::string& path, Rotation rotation, bool truncate) {
  auto log = std::make_shared<LogFile>();
  log->open(path, rotation, truncate);
  return log;
}

// A worker that failed as the disk is full could not write that there.
std::string end_of_log(const std::string& path, std::streamoff most) {
  std::string end = end_of_file(path, most).value_or("");
  std::error_code unknown;
  const auto space = std::filesystem::space(path, unknown);  // all zero: it does not know
  if (space.capacity == 0 || (::geteuid() == 0 ? space.free : space.available) > 0) return end;
  if (!end.empty() && end.back() != '\n') end += '\n';
  return end + "(No space left on device: this log may lack its last lines)\n";
}

}  // namespace

void LogPump::prepare(std::function<void()> create_folders, std::vector<StreamPlan> plans) {
  prepared_ = std::make_shared<Prepared>();
  const auto open = [to = prepared_, create = std::move(create_folders),
                     plans = std::move(plans)](std::string_view) {
    const auto add = [&](const std::string& path, Rotation rotation, bool truncate) {
      if (!path.empty()) to->files.emplace(path, opened_log(path, rotation, truncate));
    };
    try {
      create();
      for (const StreamPlan& plan : plans) {
        const bool pumped = plan.mode == StreamMode::kPump;
        if (pumped || plan.mode == StreamMode::kFile)
          add(plan.file, pumped ? plan.rotation : Rotation{}, /*truncate=*/true);
        if (pumped) add(plan.filter_file, {}, /*truncate=*/false);
      }
    } catch (...) {
      to->problem = std::current_exception();
    }
    to->done = true;
    return 0;
  };
  open_file("the log folder", open)("");
}

void LogPump::check_prepared() {
  if (prepared_ && prepared_->problem)
    std::rethrow_exception(std::exchange(prepared_, {})->problem);
}

std::shared_ptr<LogFile> LogPump::take_log(const std::string& path, Rotation rotation,
                                           bool truncate) {
  if (prepared_) {
    if (auto found = prepared_->files.extract(path)) return std::move(found.mapped());
  }
  return opened_log(path, rotation, truncate);
}

FileWriter::FilePtr LogPump::open_log(const std::string& path, Rotation rotation, bool truncate) {
  return FileWriter::open(path, [log = take_log(path, rotation, truncate)](std::string_view text) {
    return log->write(text);
  });
}

void LogPump::worker_ended(int local_rank) {
  const auto found = stderr_files_.find(local_rank);
  if (found == stderr_files_.end()) return;
  found->second->ended = true;
  const auto read = [file = found->second](std::string_view) {
    file->end = end_of_log(file->path, kTail);
    file->read = true;
    return 0;
  };
  open_file(found->second->path, read)("");
}

void LogPump::read_redirected() {
  for (const auto& [local_rank, file] : stderr_files_) {
    // Others may have written since; the thread has just found that the disk answers.
    const bool answers = !file->ended || (file->read && files_.is_idle());
    stderr_tail_[local_rank] = answers      ? end_of_log(file->path, kTail)
                               : file->read ? file->end
                                            : "(not read: the disk does not answer)\n";
  }
}

bool LogPump::flush(Patience patience, const std::vector<int>& interrupts,
                    const std::function<bool()>& give_up) {
  bool complete = true;
  bool told = false;
  int requests = interrupts.empty() ? 1 : 0;  // to give up on files
  for (settle(); !is_flushed(); settle()) {
    const bool console = is_console_waiting();
    const bool forever = console ? patience == Patience::kUnlimited : told && requests == 0;
    std::vector<pollfd> fds;
    add_poll_fds(fds, /*wants_progress=*/true);
    const bool goes_on = fds.empty() || needs_turn();
    for (const int fd : interrupts) fds.push_back({fd, POLLIN, 0});
    const int ready = ::poll(fds.data(), fds.size(), goes_on ? 0 : forever ? -1 : kPatienceMs);
    const bool stuck = ready < 0 ? errno != EINTR : ready == 0 && !goes_on;
    const bool asked = std::any_of(fds.end() - std::ssize(interrupts), fds.end(),
                                   [](const pollfd& fd) { return fd.revents != 0; }) &&
                       give_up();
    if (asked || (stuck && console)) {
      complete = false;
      drop_console();
    }
    if (asked ? ++requests > 1 : stuck && !console && requests > 0) {
      complete = false;
      give_up_files();
    } else if (stuck && !console) {
      told = true;
      note_wait();
    }
  }
  return complete;
}

// Workers whose pipes are not read stop at their next line, which looks like a hang of theirs.
void LogPump::note_backlog() {
  const auto now = Clock::now();
  if (!files_.is_long()) {
    backlog_since_.reset();
    if (std::exchange(backlog_noted_, false))
      note("the log files are written again, and what the workers print is read");
    return;
  }
  if (!backlog_since_) backlog_since_ = now;
  if (backlog_noted_ || now < *backlog_since_ + kNotableBacklog) return;
  const auto ranks = held_up();
  backlog_noted_ = !ranks.empty();
  if (!backlog_noted_) {
    backlog_since_ = now;
    return;
  }
  note(fmt::format(
      "waiting for '{}': {} bytes of the log files are not written yet, and local "
      "rank{} {}, whose output is not read meanwhile, must wait as well",
      files_.current(), files_.waiting(), ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", ")));
}

bool LogPump::is_flushed() const {
  return !is_console_waiting() && shown_[0].empty() && shown_[1].empty() && files_.is_idle() &&
         console_files_[0].is_idle() && console_files_[1].is_idle();
}

void LogPump::note_wait() {
  std::vector<std::string> notes;  // printed last, as one of the writers writes them
  for (const FileWriter* writer : writers()) {
    const std::string file = writer->current();
    if (file.empty()) continue;
    const std::size_t waiting = writer->waiting();
    const std::string unwritten =
        waiting == 0 ? ""
                     : fmt::format(": {} bytes of {} are not written yet", waiting,
                                   writer == &files_ ? "the log files" : "the console");
    notes.push_back(fmt::format("waiting for '{}'{}; a signal ends the wait", file, unwritten));
  }
  for (const std::string& line : notes) note(line);
}

void LogPump::give_up_files() {
  for (auto& shown : shown_) shown.clear();
  std::vector<std::string> notes;  // printed last, as one of the writers writes them
  for (FileWriter* writer : writers()) {
    const auto lost = writer->give_up();
    if (!lost) continue;
    (writer == &files_ ? files_given_up_ : console_given_up_) = true;
    if (lost->bytes > 0) {
      notes.push_back(fmt::format(
          "'{}' could not be written in time; the last {} bytes of {} are "
          "lost",
          lost->file, lost->bytes, writer == &files_ ? "the log files" : "the console"));
    }
  }
  for (const std::string& line : notes) note(line);
}

}  // namespace ddp::launch
