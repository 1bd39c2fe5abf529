#include "trainer/health/run_monitor.h"

#include <fmt/format.h>

#include <cstdlib>
#include <iterator>

#include "launcher/worker_contract.h"
#include "trainer/config/config.h"

namespace ddp::train {
namespace {

constexpr double kShortestPromise = 3.0;
constexpr double kStepsOfPatience = 5.0;
constexpr double kShortestStart = 30.0;  // programs do not start as fast as steps are made
constexpr double kPromiseOfFewSteps = 20.0;
constexpr std::size_t kFewSteps = 5;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

double seconds_since(RunMonitor::Clock::time_point start) {
  return std::chrono::duration<double>(RunMonitor::Clock::now() - start).count();
}

}  // namespace

double automatic_promise(const StepTimes& times, bool on_gpu) {
  if (times.count() == 0) return promise_of_start(on_gpu);
  if (times.count() < kFewSteps)
    return std::max(kPromiseOfFewSteps, kStepsOfPatience * times.longest());
  return std::max(kShortestPromise, kStepsOfPatience * (on_gpu ? times.longest() : times.median()));
}

RunMonitor::RunMonitor(const Config& config, int rank, int world_size, bool on_gpu,
                       StartTimes start, StartPulse::Waits waits)
    : hang_timeout_(config.distributed.hang_timeout_s),
      alone_(world_size == 1),
      on_gpu_(on_gpu),
      faults_(config.trainer.fault_plan, rank,
              std::atoi(environment(launch::kRestartCount).c_str())),
      file_(environment(launch::kHeartbeatFile)),
      start_(std::move(start)) {
  if (!on_gpu_) pulse_.emplace(file_, waits);
  beat(Phase::kStart, "", promise_of_start(on_gpu_));
}

double RunMonitor::promise_of_loading() const {
  const double promise = promise_of_start(on_gpu_);
  return hang_timeout_.automatic ? promise : std::max(promise, hang_timeout_.value);
}

void RunMonitor::joining() {
  loading_ = false;
  const double limit = hang_timeout_.automatic ? promise_of_start(on_gpu_)
                                               : std::max(kShortestStart, hang_timeout_.value);
  enter_for(Phase::kStart, limit);
  beat(Phase::kStart, alone_ ? "" : "group", limit);
}

void RunMonitor::started(std::string part) {
  start_.end_of(std::move(part));
  loading_ = true;
  beat(Phase::kStart, "", promise_of_loading());
}

RunMonitor::LongWork::LongWork(RunMonitor& monitor, double seconds)
    : monitor_(monitor),
      before_(std::exchange(monitor.least_promise_, std::max(monitor.least_promise_, seconds))) {}

void RunMonitor::starting(bool unlimited) {
  loading_ = true;
  enter_for(Phase::kStart, unlimited ? 0.0 : promise_of_loading());
}

double RunMonitor::promise() const {
  return hang_timeout_.automatic ? automatic_promise(times_, on_gpu_) : hang_timeout_.value;
}

void RunMonitor::begin_step(int64_t step) {
  step_ = step;
  loading_ = false;
  step_began_ = Clock::now();
  own_ = {};
}

void RunMonitor::end_step() {
  if (times_.count() == 0) start_.end_of("first step");
  pulse_.reset();
  times_.add(seconds_since(step_began_));
  last_own_ = own_;
  least_promise_ = 0.0;
}

void RunMonitor::change_phase(Phase next) {
  if (phase_ == Phase::kData) own_.data += seconds_since(phase_began_);
  if (phase_ == Phase::kForward) own_.forward += seconds_since(phase_began_);
  phase_ = next;
  phase_began_ = Clock::now();
}

void RunMonitor::enter(Phase phase, std::string_view waiting) {
  change_phase(phase);
  const std::string_view awaited = alone_ ? std::string_view() : waiting;
  if (phase == Phase::kBackward) before_backward_ = seconds_since(step_began_);
  if (!awaited.empty()) last_collective_ = fmt::format("{}#{}", awaited, step_);
  beat(phase, awaited, promise());
  if (!faults_.empty()) faults_.at(phase, step_);
}

void RunMonitor::meet(Phase phase, std::string_view collective) {
  if (!alone_) beat(phase, collective, promise());
}

void RunMonitor::enter_for(Phase phase, double seconds) {
  change_phase(phase);
  beat(phase, "", seconds);
  const bool its_own = phase == Phase::kStart || phase == Phase::kEnd;
  if (its_own && !faults_.empty()) faults_.at(phase, step_);
}

void RunMonitor::beat(Phase phase, std::string_view waiting, double seconds) {
  constexpr double kShortest = 0.1;  // what one digit can say
  fmt::memory_buffer line;
  auto out = fmt::format_to(std::back_inserter(line), "step={} phase={}", step_, name_of(phase));
  if (!waiting.empty()) out = fmt::format_to(out, " waiting={}", waiting);
  out = fmt::format_to(out, " collective={}", last_collective_);
  const bool promises = seconds > 0.0 && (hang_timeout_.automatic || hang_timeout_.value > 0.0);
  if (promises)
    out = fmt::format_to(out, " timeout={:.1f}", std::max({kShortest, least_promise_, seconds}));
  if (!alone_ && times_.count() > 0) {
    out = fmt::format_to(out, " times={}:{:.4g},{}:{:.4g}", name_of(Phase::kData), last_own_.data,
                         name_of(Phase::kForward), last_own_.forward);
  }
  // Not before the first step: starting a spare would slow it down.
  if (times_.count() > 0) out = fmt::format_to(out, " {}", launch::kSparesWord);
  fmt::format_to(out, " {}", launch::kEveryRankWord);
  const std::string_view text(line.data(), line.size());
  const bool repeats = promises && (hang_timeout_.automatic || loading_);
  pulse_ ? pulse_->beat(text, repeats) : file_.beat(text);
}

}  // namespace ddp::train
