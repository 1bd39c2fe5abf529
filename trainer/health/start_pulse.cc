#include "trainer/health/start_pulse.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <bit>
#include <fstream>
#include <utility>

namespace ddp::train {
namespace {

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

int64_t switches_of(pid_t thread) {
  constexpr std::string_view kField = "voluntary_ctxt_switches:";
  std::ifstream status(fmt::format("/proc/self/task/{}/status", thread));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(kField)) return std::atoll(line.c_str() + kField.size());
  return 0;
}

Effort effort_so_far(pid_t training_thread) {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  // Without what is written, as heartbeats are.
  return {seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime),
          usage.ru_inblock + usage.ru_majflt, switches_of(training_thread)};
}

// At least so many of the last ten looks must have found progress: other threads of a rank that
// is stuck, such as Gloo's, have a busy second now and then.
constexpr uint32_t kLastTen = 0x3FF;
constexpr int kEnough = 5;

}  // namespace

bool makes_progress(const Effort& since, double seconds) {
  constexpr double kShareOfCpu = 0.01;  // threads that only look around take less
  constexpr double kSwitchesPerSecond = 20.0;
  return since.disk > 0 || since.cpu_seconds >= kShareOfCpu * seconds ||
         static_cast<double>(since.switches) >= kSwitchesPerSecond * seconds;
}

StartPulse::StartPulse(HeartbeatFile& file, Waits waits)
    : file_(file), waits_(waits), training_thread_(::gettid()) {
  if (file.is_open()) thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
}

void StartPulse::beat(std::string_view line, bool repeats) {
  const std::lock_guard lock(mutex_);
  file_.beat(line);
  line_ = repeats ? line : "";
  began_ = Clock::now();
}

void StartPulse::work(const std::stop_token& stop) {
  Effort before = effort_so_far(training_thread_);
  auto looked = Clock::now();
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, stop, kLook, [&stop] { return stop.stop_requested(); })) {
    const Effort effort = effort_so_far(training_thread_);
    const auto now = Clock::now();
    const Effort since = {effort.cpu_seconds - before.cpu_seconds, effort.disk - before.disk,
                          effort.switches - before.switches};
    if (!line_.empty()) look(since, std::chrono::duration<double>(now - looked).count(), now);
    before = effort;
    looked = now;
  }
}

// A rank that waits reports it: its peers on this machine are judged by their own heartbeats.
void StartPulse::look(const Effort& since, double seconds, Clock::time_point now) {
  const uint64_t wait = waits_ != nullptr ? waits_() : 0;
  if (wait != std::exchange(wait_, wait)) wait_began_ = now;
  recent_ = (recent_ << 1) | (makes_progress(since, seconds) ? 1U : 0U);
  if (wait != 0) {
    if (now - wait_began_ < kLongestWait) file_.beat(line_ + " waiting=peers");
  } else if (std::popcount(recent_ & kLastTen) >= kEnough && now - began_ < kLongest) {
    file_.beat(line_);
  }
}

}  // namespace ddp::train
