#include "launcher/agent/exit_watch.h"

#include <fmt/format.h>

#include "launcher/agent/worker_reports.h"
#include "launcher/base/text.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr std::chrono::seconds kFirstLine(60);

std::vector<int> ranks_in(const std::vector<Worker>& workers, WorkerState state) {
  std::vector<int> ranks;
  for (const Worker& worker : workers) {
    if (worker.state == state) ranks.push_back(worker.rank);
  }
  return ranks;
}

}  // namespace

void ExitWatch::begin_round() {
  first_exit_.reset();
  look_at_.reset();
  elsewhere_ = {};
}

void ExitWatch::exited(Clock::time_point now) {
  if (first_exit_) return;
  first_exit_ = now;
  const bool soon = grace_.count() > 0 && grace_ < kFirstLine;
  look_at_ = now + (soon ? grace_ : kFirstLine);
}

void ExitWatch::exited_elsewhere(const PartlyDone& others, Clock::time_point now) {
  elsewhere_ = others;
  exited(now);
}

void ExitWatch::forgive(Clock::duration suspended) {
  if (first_exit_) *first_exit_ += suspended;
  if (look_at_) *look_at_ += suspended;
}

std::vector<ProcessFailure> ExitWatch::look(const std::vector<Worker>& workers,
                                            ProcessRunner& processes) {
  const auto now = processes.turn_began();
  if (!look_at_ || now < *look_at_) return {};
  const auto here = ranks_in(workers, WorkerState::kSucceeded);
  std::string exited = here.empty() ? "" : numbered("rank", here);
  if (!elsewhere_.nodes.empty())
    exited += (here.empty() ? "all of " : " and all of ") + elsewhere_.nodes;
  look_at_.reset();
  if (grace_.count() == 0 || now < *first_exit_ + grace_) {
    const auto running = ranks_in(workers, WorkerState::kRunning);
    // Among nodes where all still run, one is enough.
    if (!here.empty() || elsewhere_.first) {
      processes.note(fmt::format(
          "{} {} exited, {} still {} after {}{}", exited,
          here.size() == 1 && elsewhere_.nodes.empty() ? "has" : "have", numbered("rank", running),
          running.size() == 1 ? "runs" : "run", seconds_text(kFirstLine),
          grace_.count() > 0 ? "" : "; --exit-grace=SECONDS stops such workers"));
    }
    if (grace_.count() > 0) look_at_ = *first_exit_ + grace_;
    return {};
  }
  std::vector<ProcessFailure> failures;
  for (const Worker& worker : workers) {
    if (worker.state != WorkerState::kRunning) continue;
    failures.push_back(failure_of(worker, processes));
    failures.back().exit = {kExitHang, 0};
    failures.back().hang = fmt::format("still running {} after {} exited (--exit-grace)",
                                       seconds_text(grace_), exited);
  }
  return failures;
}

}  // namespace ddp::launch
