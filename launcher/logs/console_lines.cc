#include "launcher/logs/console_lines.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launcher/base/system/descriptors.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kPart = 256 << 10;  // bytes read back at once

}  // namespace

ConsoleLines::ConsoleLines(const StreamPlan& plan, int local_rank, ConsoleQueue& queue,
                           RepeatFolding* folding, const FileWriter& files, FileWriter::FilePtr log)
    : prefix_(plan.prefix),
      rank_{local_rank},
      queue_(queue),
      folding_(folding),
      may_skip_(!plan.file.empty()),
      files_(files),
      log_(std::move(log)) {
  // A rotated file may be deleted by the time it is needed.
  if (may_skip_ && plan.rotation.max_bytes == 0) {
    file_ = Descriptor(::open(plan.file.c_str(), O_RDONLY | O_CLOEXEC));
  }
  if (folding_) folding_->join(local_rank);
  prefix_.append_to(prefix_text_, rank_, {});
}

void ConsoleLines::take(std::string_view text, bool wait) {
  const bool keep_up = file_.get() < 0 || !(is_behind() || wait || queue_.is_long());
  written_ += text.size();
  if (!keep_up) return;
  shown_ = written_;
  show(text);
}

void ConsoleLines::catch_up() {
  if (is_behind() && !queue_.is_long() && readable() > 0) read_part();
  if (is_done()) finish();
}

// Number of bytes not yet shown that the log file holds. What was shown may not be in it yet.
std::uint64_t ConsoleLines::readable() const {
  return std::max(shown_, std::min(written_, files_.written(*log_))) - shown_;
}

void ConsoleLines::read_part() {
  std::string part(std::min<std::uint64_t>(kPart, readable()), '\0');
  const ssize_t got = ::pread(file_.get(), part.data(), part.size(), static_cast<off_t>(shown_));
  if (got <= 0) {
    shown_ += readable();  // someone truncated the file: its contents are lost
    return;
  }
  shown_ += static_cast<std::uint64_t>(got);
  show(std::string_view(part).substr(0, static_cast<std::size_t>(got)));
}

void ConsoleLines::absorb(const FileWriter::Failure& failure) {
  if (failure.file != log_) return;
  while (readable() > 0) read_part();
  const std::uint64_t behind = written_ - shown_;
  shown_ = written_;
  if (behind > 0) show(std::string_view(failure.rest).substr(failure.rest.size() - behind));
  if (behind > 0 && ended_) finish();
  file_.reset();
}

void ConsoleLines::end() {
  ended_ = true;
  if (is_done()) finish();
}

void ConsoleLines::finish() {
  if (const auto rest = lines_.rest(); !rest.empty()) show_line(rest);
  if (folding_) folding_->leave(rank_.front());
  folding_ = nullptr;
  file_.reset();
}

void ConsoleLines::show(std::string_view text) {
  for (std::string_view line; lines_.next(text, line);) show_line(line);
}

void ConsoleLines::show_line(std::string_view line) {
  if (file_.get() < 0 && may_skip_ && queue_.is_full()) {
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
