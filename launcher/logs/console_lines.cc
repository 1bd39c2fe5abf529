#include "launcher/logs/console_lines.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "launcher/base/descriptors.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kPart = 256 << 10;  // bytes read back at once

}  // namespace

ConsoleLines::ConsoleLines(const StreamPlan& plan, int local_rank, ConsoleQueue& queue,
                           RepeatFolding* folding)
    : prefix_(plan.prefix),
      rank_{local_rank},
      queue_(queue),
      folding_(folding),
      may_skip_(!plan.file.empty()) {
  // A rotated file may be gone by the time it is needed.
  if (may_skip_ && plan.rotation.max_bytes == 0) {
    file_ = ::open(plan.file.c_str(), O_RDONLY | O_CLOEXEC);
  }
  if (folding_) folding_->join(local_rank);
  prefix_.append_to(prefix_text_, rank_, {});
}

ConsoleLines::~ConsoleLines() { close_file(); }

void ConsoleLines::close_file() { close_descriptor(file_); }

void ConsoleLines::take(std::string_view text, bool wait) {
  const bool keep_up = file_ < 0 || !(is_behind() || wait || queue_.is_long());
  written_ += text.size();
  if (!keep_up) return;
  shown_ = written_;
  show(text);
}

void ConsoleLines::catch_up() {
  if (is_behind() && !queue_.is_long()) read_part();
  if (is_done()) finish();
}

bool ConsoleLines::read_part() {
  std::string part(std::min<std::uint64_t>(kPart, written_ - shown_), '\0');
  const ssize_t got = ::pread(file_, part.data(), part.size(), static_cast<off_t>(shown_));
  if (got <= 0) {
    shown_ = written_;  // someone truncated the file: its contents are lost
    return false;
  }
  shown_ += static_cast<std::uint64_t>(got);
  show(std::string_view(part).substr(0, static_cast<std::size_t>(got)));
  return is_behind();
}

void ConsoleLines::file_ends() {
  while (is_behind() && read_part()) {
  }
  close_file();
}

void ConsoleLines::end() {
  ended_ = true;
  if (is_done()) finish();
}

void ConsoleLines::finish() {
  if (const auto rest = lines_.rest(); !rest.empty()) show_line(rest);
  if (folding_) folding_->leave(rank_.front());
  folding_ = nullptr;
  close_file();
}

void ConsoleLines::show(std::string_view text) {
  for (std::string_view line; lines_.next(text, line);) show_line(line);
}

void ConsoleLines::show_line(std::string_view line) {
  if (file_ < 0 && may_skip_ && queue_.is_full()) {
    ++skipped_;
  } else if (folding_) {
    folding_->add(rank_.front(), line, RepeatFolding::Time::clock::now());
  } else {
    queue_.append_line(prefix(), line);
  }
}

const std::string& ConsoleLines::prefix() {
  if (!prefix_.has_time()) return prefix_text_;
  using std::chrono::milliseconds;
  const auto now = std::chrono::floor<milliseconds>(LinePrefix::Clock::now());
  if (now != prefix_time_) {
    prefix_time_ = now;
    prefix_text_.clear();
    prefix_.append_to(prefix_text_, rank_, now);
  }
  return prefix_text_;
}

}  // namespace ddp::launch
