// What a run does between two steps: the list of its duties in their order, and the work of each
// duty except the records.
#include <fmt/format.h>

#include <utility>

#include "trainer/config/config.h"
#include "trainer/run/training_run.h"
#include "trainer/runtime/group_error.h"
#include "trainer/runtime/process/stop_signal.h"

namespace ddp::train {
namespace {

/// 0: never.
bool divides(const std::optional<int64_t>& every, int64_t step) {
  return every.value_or(0) > 0 && step % *every == 0;
}

}  // namespace

// In this order: no state is saved of which the replicas differ, and the histograms' gradients and
// the sample's weights are those of the step.
std::vector<Duty> TrainingRun::duties() {
  const auto every = [this](const std::optional<int64_t>& steps) {
    return [this, steps](const StepEnd& end) {
      return divides(steps, end.step) && end.step != rolled_back_to_;
    };
  };
  const auto& trainer = config_.trainer;
  return {{Phase::kProfiling, kLongWork, /*main_only=*/false,
           [this](const StepEnd& end) { return profile_.ends_with(end.step); },
           [this](const StepEnd&) { profile_.finish(trainer_.strategy().sync().times()); }},
          {Phase::kComparing, kLongWork, /*main_only=*/false,
           every(trainer.check_replicas_every_steps), [this](const StepEnd&) { check_replicas(); }},
          {Phase::kHistograms, kLongWork, /*main_only=*/!trainer_.holds_shards(),
           every(config_.logging.histogram_every_steps),
           [this](const StepEnd&) { record_histograms(); }},
          {Phase::kSampling, kLongWork, /*main_only=*/!trainer_.holds_shards(),
           [this, due = every(trainer.sample_every_steps)](const StepEnd& end) {
             return stop_signal_ == 0 && due(end);
           },
           [this](const StepEnd&) { record_sample(); }},
          evaluation(),
          {Phase::kAllReduce, kPieceOfWork, /*main_only=*/false,
           [this](const StepEnd& end) { return known_snapshot_due(end); },
           [this](const StepEnd&) { judge_last(); }},
          {Phase::kStaging, kLongWork, /*main_only=*/!saves_together(),
           [this](const StepEnd& end) { return snapshot_due(end); },
           [this](const StepEnd& end) { take_snapshot(end); }}};
}

// After a stop signal it stays due, and is made when training resumes.
Duty TrainingRun::evaluation() {
  return {Phase::kEvaluation, kPieceOfWork, /*main_only=*/false,
          [this](const StepEnd&) { return stop_signal_ == 0 && trainer_.evaluation_due(); },
          [this](const StepEnd&) { run_evaluation(); }};
}

void TrainingRun::after_step(bool epoch_ended) {
  const StepEnd end{trainer_.step(), epoch_ended};
  if (end.step != rolled_back_to_ &&
      (epoch_ended || finished() || divides(config_.trainer.eval_every_steps, end.step)))
    trainer_.set_evaluation_due(true);
  for (const Duty& duty : duties_) {
    if (!duty.due(end)) continue;
    if (duty.main_only && !group_.is_main())
      monitor_.expect_delay(duty.promise);
    else
      perform(duty, end);
  }
}

void TrainingRun::perform(const Duty& duty, const StepEnd& end) {
  const RunMonitor::LongWork promise(monitor_, duty.promise);
  monitor_.enter_for(duty.phase, duty.promise);
  throughput_.pause();
  duty.work(end);
  throughput_.resume();
}

void TrainingRun::check_replicas() {
  monitor_.enter(Phase::kComparing);
  const auto difference =
      trainer_.compare_replicas([this] { monitor_.meet(Phase::kComparing, "compare_replicas"); });
  if (!difference) return;
  throw GroupError(fmt::format(
      "step {}: the replicas differ: {} of rank {} is not that of rank 0 "
      "(trainer_config.check_replicas_every_steps={}); the state of this step is not saved, the "
      "last snapshot is {}",
      trainer_.step(), difference->tensor, difference->rank,
      config_.trainer.check_replicas_every_steps, folder_.path()));
}

bool TrainingRun::fixed_snapshot_due(const StepEnd& end) const {
  const auto& every = config_.trainer;
  const auto& best = trainer_.best_eval();
  return (end.epoch_ended && trainer_.cursor().epoch % every.save_every == 0) ||
         divides(every.save_every_steps, end.step) ||
         (every.load_best_model_at_end && best && best->step == end.step);
}

bool TrainingRun::known_snapshot_due(const StepEnd& end) const {
  const AutoNumber& every = config_.trainer.snapshot_every;
  return fixed_snapshot_due(end) || snapshot_wished_ || memory_copy_wished_ ||
         (!every.automatic && divides(static_cast<int64_t>(every.value), end.step));
}

// The last state is saved when the run ends. What depends on time is known to rank 0 alone, and has
// to wait for the next step if this one may be bad: all ranks must judge it.
// The others expect a delay by the first copy, for which memory is reserved and page-locked.
bool TrainingRun::snapshot_due(const StepEnd& end) {
  if (stop_signal_ != 0 || finished()) return false;
  const bool fixed = fixed_snapshot_due(end);
  if (saves_together()) return fixed || snapshot_wished_ || memory_copy_wished_;
  if (!keeper_) return fixed && std::exchange(before_first_snapshot_, false);
  return (fixed || keeper_->due(end.step) || wants_memory_copy()) && last_looks_good();
}

void TrainingRun::take_snapshot(const StepEnd& end) {
  const bool fixed = fixed_snapshot_due(end);
  if (sharded_) return take_sharded_snapshot(fixed);
  const bool to_disk = keeper_ && (fixed || snapshot_wished_ || keeper_->due(end.step));
  const auto state = capture();
  if (!keeper_) return;
  if (to_disk) save(state, fixed ? SaveReason::kFixed : SaveReason::kInterval);
  if (wants_memory_copy()) keeper_->save_to_memory(state);
}

void TrainingRun::run_evaluation() {
  const auto& last = trainer_.last_eval();
  const bool made_before = last && last->step == trainer_.step();
  const auto result = trainer_.evaluate_now(
      [this] {
        monitor_.enter(Phase::kEvaluation);
        return StopSignal::pending() == 0;
      },
      [this] { monitor_.enter(Phase::kEvaluation, "all_reduce"); });
  if (trainer_.evaluation_due())  // broken off
    stop_signal_ = static_cast<int>(group_.all_reduce_max_async(StopSignal::pending()).wait());
  if (result && group_.is_main()) log_evaluation(*result, made_before);
  say_warnings();
}

}  // namespace ddp::train
