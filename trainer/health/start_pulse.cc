#include "trainer/health/start_pulse.h"

#include <sys/resource.h>

namespace ddp::train {
namespace {

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

Effort effort_so_far() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  // Without what is written, as heartbeats are.
  return {seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime),
          usage.ru_inblock + usage.ru_majflt};
}

}  // namespace

bool makes_progress(const Effort& since, double seconds) {
  constexpr double kShareOfCpu = 0.01;  // threads that only look around take less
  return since.disk > 0 || since.cpu_seconds >= kShareOfCpu * seconds;
}

StartPulse::StartPulse(HeartbeatFile& file, Waits waits) : file_(file), waits_(waits) {
  if (file.is_open()) thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
}

void StartPulse::beat(std::string_view line, bool repeats) {
  const std::lock_guard lock(mutex_);
  file_.beat(line);
  line_ = repeats ? line : "";
  began_ = Clock::now();
}

void StartPulse::work(const std::stop_token& stop) {
  Effort before = effort_so_far();
  auto looked = Clock::now();
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, stop, kLook, [&stop] { return stop.stop_requested(); })) {
    const Effort effort = effort_so_far();
    const auto now = Clock::now();
    const Effort since = {effort.cpu_seconds - before.cpu_seconds, effort.disk - before.disk};
    if (!line_.empty()) look(since, std::chrono::duration<double>(now - looked).count(), now);
    before = effort;
    looked = now;
  }
}

// A rank that waits reports it: its peers on this machine are judged by their own heartbeats.
void StartPulse::look(const Effort& since, double seconds, Clock::time_point now) {
  const auto lasts = now - began_;
  if (makes_progress(since, seconds)) {
    if (lasts < kLongest) file_.beat(line_);
  } else if (waits_ != nullptr && waits_() != 0 && lasts < kLongestWait) {
    file_.beat(line_ + " waiting=peers");
  }
}

}  // namespace ddp::train
