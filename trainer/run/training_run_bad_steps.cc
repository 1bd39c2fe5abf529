// What a run does about bad numbers: steps with NaN, Inf or a spike, and a last evaluation without
// a loss.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/config/config.h"
#include "trainer/parallel/device/device_progress.h"
#include "trainer/run/state/shared_snapshot.h"
#include "trainer/run/training_run.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/group_error.h"

namespace ddp::train {
namespace {

/// Updates skipped in a row before the run gives up: the weights stay as they are, so it is the
/// same model that fails on all of these samples.
constexpr int64_t kMostSkipped = 20;
/// Updates skipped in a row as gradients overflowed float16: from GradScaler's first scale, 2^16,
/// that leads to 2^-24, at which no scale will do.
constexpr int64_t kMostOverflows = 40;

/// The sign of NaN is meaningless.
std::string digits_of(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{:.6g}", value);
}

}  // namespace

// On a GPU the flag is read when the next step has been queued: nothing waits for the device here.
void TrainingRun::defer_check(StepOutput output, const DataCursor& at) {
  auto not_finite = begin_to_host(output.not_finite);
  DeviceProgress::collectives_end_at(not_finite.copied);
  PendingCheck fresh{trainer_.step(), at, std::move(output), std::move(not_finite)};
  judge_last();
  pending_check_ = std::move(fresh);
  if (trainer_.device_plan().device.is_cpu()) judge_last();
}

// For all ranks at once, as those that find a bad step talk about it.
void TrainingRun::judge_last() {
  if (!pending_check_) return;
  const PendingCheck last = *std::exchange(pending_check_, std::nullopt);
  const StepVerdict verdict = judge(last);
  if (verdict != StepVerdict::kGood) return handle_bad_step(verdict, last);
  rollback_limit_.good_step(last.step);
}

/// For one rank alone: all of them judge the step later.
bool TrainingRun::last_looks_good() const {
  return !pending_check_ || !is_suspect(*pending_check_);
}

bool TrainingRun::is_suspect(const PendingCheck& step) {
  wait_for_device(step.not_finite.copied);
  return step.output.spike || step.not_finite.tensor.item<float>() != 0.0F;
}

// The flag is made of gradients that all ranks have alike. A device that computes another one must
// not lead its rank alone into the collectives of a bad step.
bool TrainingRun::all_suspect(const PendingCheck& step) {
  const bool suspect = is_suspect(step);
  const auto found = group_.all_reduce_max_async({suspect ? 1 : 0, suspect ? 0 : 1}).wait_all();
  if (found[0] == 0 || found[1] == 0) return suspect;
  const auto flags = group_.gather_doubles(suspect ? 1.0 : 0.0);
  const auto rank = std::find(flags.begin(), flags.end(), 1.0) - flags.begin();
  throw GroupError(fmt::format(
      "step {}: the gradients are NaN or Inf on rank {} but not on every rank, though all ranks "
      "have the same ones: its processor or memory may be faulty (dmesg and nvidia-smi -q report "
      "errors); the state of this step is not saved, the last snapshot is {}",
      step.step, rank, folder_.path()));
}

// GradScaler tries a smaller scale: nothing is wrong as long as the loss is a number.
StepVerdict TrainingRun::judge(const PendingCheck& step) {
  if (!all_suspect(step)) {
    overflows_ = 0;
    return StepVerdict::kGood;
  }
  if (step.output.spike) return StepVerdict::kSpike;
  if (!trainer_.scaler().enabled() || !std::isfinite(trainer_.global_mean_loss(step.output)))
    return StepVerdict::kNotFinite;
  count_overflow(step.step);
  return StepVerdict::kGood;
}

void TrainingRun::count_overflow(int64_t step) {
  ++all_overflows_;
  if (++overflows_ < kMostOverflows) return;
  throw FinalError(fmt::format(
      "Step {}: the gradients of {} steps in a row overflowed float16, whatever the loss scale; "
      "set "
      "trainer_config.amp_dtype=bfloat16, or lower optimizer_config.learning_rate; the last "
      "snapshot is {}",
      step, kMostOverflows, folder_.path()));
}

void TrainingRun::handle_bad_step(StepVerdict verdict, const PendingCheck& bad) {
  trainer_.guard().count_bad(bad.step);
  const std::string what =
      fmt::format("Step {}: {}: loss {}, grad norm {}; {}", bad.step,
                  verdict == StepVerdict::kSpike ? "spike" : "NaN or Inf",
                  digits_of(trainer_.global_mean_loss(bad.output)),
                  digits_of(to_host(bad.output.grad_norm).item<float>()), samples_of(bad.at));
  switch (config_.trainer.bad_step_policy) {
    case BadStepPolicy::kSkip:
      break;
    case BadStepPolicy::kRollback:
      if (!rollback_limit_.allows_another()) {
        throw FinalError(fmt::format(
            "{}; {} rollbacks in a row made no progress past step {}: training diverges; lower "
            "optimizer_config.learning_rate, set trainer_config.grad_norm_clip, or let "
            "trainer_config.bad_step_policy=skip pass over such steps; the last snapshot is {}",
            what, RollbackLimit::kMost, rollback_limit_.furthest(), folder_.path()));
      }
      if (group_.is_main()) log_.warning(what);
      if (roll_back(bad.step)) return;
      if (group_.is_main()) log_.warning("There is no snapshot to go back to");
      break;
    case BadStepPolicy::kStop:
      throw FinalError(
          fmt::format("{}; trainer_config.bad_step_policy=stop ends the run; the last "
                      "snapshot is {}",
                      what, folder_.path()));
  }
  if (trainer_.guard().bad_in_a_row(bad.step) >= kMostSkipped) {
    throw FinalError(fmt::format(
        "{}; {} updates in a row were skipped: training diverges; lower "
        "optimizer_config.learning_rate, set trainer_config.grad_norm_clip, or check these "
        "samples; the last snapshot is {}",
        what, kMostSkipped, folder_.path()));
  }
  if (group_.is_main())
    log_.warning(fmt::format("{}: update skipped, {} so far", what, trainer_.guard().bad_steps()));
}

std::string TrainingRun::samples_of(const DataCursor& at) const {
  constexpr int64_t kMost = 16;
  const int64_t count = trainer_.sampler().global_batch();
  const Permutation order = trainer_.sampler().order(at.epoch);
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < std::min(count, kMost); ++i) samples.push_back(order(at.position + i));
  return fmt::format("epoch {}, samples {}{}", at.epoch + 1, fmt::join(samples, " "),
                     count > kMost ? fmt::format(" and {} more", count - kMost) : "");
}

bool TrainingRun::roll_back(int64_t bad_step) {
  const RunMonitor::LongWork promise(monitor_, kLongWork);
  monitor_.enter_for(Phase::kStart, kLongWork);
  std::optional<OpenedSnapshot> snapshot;
  if (keeper_) {
    keeper_->before_update();
    keeper_->wait();
  }
  settle_shards();
  if (group_.is_main()) snapshot = folder_.find();
  const std::string json = group_.broadcast_text(snapshot ? snapshot->meta.to_json() : "");
  if (json.empty()) return false;
  // Theirs are steps that are to be made in another way now, and they would be found as newer.
  if (keeper_) keeper_->forget_memory();
  pending_check_.reset();
  snapshot_wished_ = false;
  memory_copy_wished_ = false;
  const StepGuard known = trainer_.guard();
  const auto meta = SnapshotMeta::from_json(json);
  if (sharded_) snapshot = open_as_rank_zero(std::move(snapshot), group_);
  trainer_.restore(meta, snapshot ? &*snapshot : nullptr);
  trainer_.guard().remember(known);
  trainer_.guard().leave_out(bad_step);
  loader_ = trainer_.make_loader();
  rolled_back_to_ = meta.step;
  if (group_.is_main()) {
    records_->begin_after(meta.step);
    log_.warning(fmt::format("Back to the snapshot of step {}; step {} will be left out", meta.step,
                             bad_step));
  }
  return true;
}

// On every rank, which all have the same result: good gradients may lead to useless weights too.
void TrainingRun::check_last(const FitResult& result) const {
  if (stop_signal_ != 0 || !result.eval_loss || std::isfinite(*result.eval_loss)) return;
  throw GroupError(fmt::format(
      "the loss of the last evaluation is {}: the run has ended, but its model is useless; lower "
      "optimizer_config.learning_rate{}, and start over with another trainer_config.snapshot_path",
      digits_of(*result.eval_loss),
      trainer_.scaler().enabled() ? " or set trainer_config.amp_dtype=bfloat16" : ""));
}

}  // namespace ddp::train
