#include "trainer/app/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace ddp::train {
namespace {

constexpr double kMegabyte = 1e6;

std::string minutes(double seconds) {
  const auto whole = std::llround(seconds);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

ProgressLine::ProgressLine(std::string what, uint64_t total_bytes)
    : what_(std::move(what)),
      total_(std::max<uint64_t>(total_bytes, 1)),
      terminal_(::isatty(STDERR_FILENO) != 0) {}

ProgressLine::~ProgressLine() {
  if (!drawn_ || !terminal_) return;
  draw(Clock::now());
  std::fputc('\n', stderr);
}

void ProgressLine::add(uint64_t bytes) {
  constexpr std::chrono::milliseconds kOnTerminal(100);
  constexpr std::chrono::seconds kElsewhere(10);
  done_ += bytes;
  const auto now = Clock::now();
  if (now - last_ < (terminal_ ? Clock::duration(kOnTerminal) : Clock::duration(kElsewhere)))
    return;
  last_ = now;
  draw(now);
}

void ProgressLine::draw(Clock::time_point now) {
  const std::string line = text(std::chrono::duration<double>(now - start_).count());
  if (terminal_) {
    fmt::print(stderr, "\r{}\x1b[K", line);
  } else {
    fmt::print(stderr, "{}\n", line);
  }
  std::fflush(stderr);
  drawn_ = true;
}

std::string ProgressLine::text(double seconds) const {
  constexpr std::size_t kWidth = 24;
  const double share = std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
  const auto filled = static_cast<std::size_t>(share * kWidth);
  const double rate = static_cast<double>(done_) / std::max(seconds, 1e-3);
  const double left = static_cast<double>(total_ - std::min(done_, total_)) / std::max(rate, 1.0);
  return fmt::format("{} [{:-<{}}] {:3.0f} %  {:.0f} of {:.0f} MB  {:.1f} MB/s  {} left", what_,
                     std::string(filled, '#'), kWidth, share * 100,
                     static_cast<double>(done_) / kMegabyte,
                     static_cast<double>(total_) / kMegabyte, rate / kMegabyte, minutes(left));
}

}  // namespace ddp::train
