#include "trainer/run/training_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/metrics/text.h"
#include "trainer/run/run_end.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/stop_signal.h"
#include "trainer/snapshot/ram_snapshots.h"

namespace ddp::train {
namespace {

/// The sign of NaN says nothing.
std::string digits_of(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{:.6g}", value);
}

bool divides(const std::optional<int64_t>& every, int64_t step) {
  return every && step % *every == 0;
}

/// The loss, then the other metrics by name.
std::string eval_text(const Metrics& metrics) {
  std::string text = fmt::format("Eval Loss {:.6f}", metrics.front().second);
  for (std::size_t i = 1; i < metrics.size(); ++i) {
    const auto& [name, value] = metrics[i];
    text += std::floor(value) == value && value > 1.0 ? fmt::format(" | {:.0f} {}", value, name)
                                                      : fmt::format(" | {} {:.4f}", name, value);
  }
  return text;
}

}  // namespace

TrainingRun::TrainingRun(const Config& config, ProcessGroup& group, Trainer& trainer,
                         SnapshotFolder& folder, RemoteSnapshots* remote, RunMonitor& monitor,
                         Log& log, const std::string& resumed_from)
    : config_(config),
      group_(group),
      trainer_(trainer),
      folder_(folder),
      monitor_(monitor),
      log_(log),
      first_step_(trainer.step()) {
  if (!group.is_main()) return;
  keeper_ =
      std::make_unique<SnapshotKeeper>(config.trainer, folder, remote, monitor, log, resumed_from);
  account_ = std::make_unique<RunAccount>(folder.path(), trainer.step());
  // Training that goes on from a copy in memory has not saved that step.
  if (resumed_from == folder.path()) saved_step_ = trainer.step();
}

bool TrainingRun::finished() const {
  return trainer_.early_stopping().stops() ||
         run_is_complete(config_.trainer, trainer_.step(), trainer_.cursor().epoch);
}

FitResult TrainingRun::fit() {
  if (group_.is_main()) log_start();
  if (finished()) return nothing_to_train();
  loader_ = trainer_.make_loader();
  throughput_ = Throughput([device = trainer_.device_plan().device] {
    if (const auto ready = record_ready(device)) ready->synchronize();
  });
  if (trainer_.evaluation_due()) run_evaluation();
  train_until_end();
  loader_.reset();
  const bool evaluated = trainer_.last_eval() && trainer_.last_eval()->step == trainer_.step();
  if (stop_signal_ == 0 && !evaluated) run_evaluation();
  save_last();
  monitor_.enter_for(Phase::kEnd, 0);
  group_.barrier();
  if (group_.is_main()) log_end();
  FitResult result = this->result();
  if (trainer_.step() > first_step_) result.train_loss = last_loss_;
  return result;
}

FitResult TrainingRun::result() const {
  FitResult result{stop_signal_, {}, {}};
  const bool best = config_.trainer.load_best_model_at_end && stop_signal_ == 0;
  const auto& evaluation = best ? trainer_.best_eval() : trainer_.last_eval();
  if (evaluation) result.eval_loss = evaluation->loss;
  return result;
}

FitResult TrainingRun::nothing_to_train() {
  log_.info(trainer_.early_stopping().stops()
                ? nothing_after_early_stop_text(config_.trainer, trainer_.step())
                : nothing_to_train_text(config_.trainer, trainer_.step(), trainer_.cursor().epoch));
  const bool was_due = trainer_.evaluation_due();
  run_evaluation();
  // A signal had broken this evaluation off: its result belongs to the snapshot.
  if (was_due && !trainer_.evaluation_due()) saved_step_ = -1;
  save_last();
  return result();
}

// Judging the last step may lead back to an earlier one.
void TrainingRun::train_until_end() {
  do {
    train_until_limit();
    judge_last();
  } while (!finished() && stop_signal_ == 0);
}

void TrainingRun::train_until_limit() {
  while (!finished() && stop_signal_ == 0) {
    // The signals seen before this step began: every rank reads the same value and stops after the
    // same step.
    auto wish = group_.all_reduce_max_async(StopSignal::pending());
    const int64_t epoch = trainer_.cursor().epoch;
    monitor_.begin_step(trainer_.step() + 1);
    one_step();
    monitor_.enter(Phase::kAllReduce, "all_reduce");
    stop_signal_ = static_cast<int>(wish.wait());
    monitor_.end_step();
    if (account_) account_->step_done(trainer_.step(), keeper_->counts());
    if (StopSignal::take_report_wish()) say_where_time_goes();
    after_step(trainer_.cursor().epoch > epoch);  // a rollback may lead to an earlier one
  }
}

void TrainingRun::one_step() {
  const int64_t step = trainer_.step() + 1;
  const DataCursor at = trainer_.cursor();
  if (trainer_.guard().leaves_out(step)) {
    trainer_.leave_out_step(*loader_);
    log_.info(fmt::format("Step {}: left out, as decided before", step));
    return judge_last();
  }
  const StepOutput output = trainer_.train_step(*loader_, monitor_, [this] {
    if (keeper_) keeper_->before_update();
  });
  throughput_.add(trainer_.sampler().global_batch() * trainer_.task().units_per_sample());
  before_backward_ += monitor_.seconds_before_backward();
  ++steps_since_log_;
  const bool first = step == first_step_ + 1;
  if (first || step % config_.trainer.log_every_steps == 0 || finished())
    log_step(output, at.epoch);
  judge_later(output, at);
}

// On a GPU the flag is read when the next step has been queued: nobody waits for the device here.
void TrainingRun::judge_later(StepOutput output, const DataCursor& at) {
  Unjudged fresh{trainer_.step(), at, std::move(output), {}, nullptr};
  const auto device = trainer_.device_plan().device;
  if (device.is_cpu()) {
    fresh.not_finite = fresh.output.not_finite;
  } else {
    fresh.not_finite = torch::empty({}, torch::TensorOptions(torch::kFloat32).pinned_memory(true));
    fresh.not_finite.copy_(fresh.output.not_finite, /*non_blocking=*/true);
    fresh.copied = record_ready(device);
  }
  judge_last();
  unjudged_ = std::move(fresh);
  if (device.is_cpu()) judge_last();
}

// The flag is made of the averaged gradients: the same on all ranks.
void TrainingRun::judge_last() {
  if (!unjudged_) return;
  const Unjudged last = *std::exchange(unjudged_, std::nullopt);
  const StepVerdict verdict = judge(last);
  if (verdict != StepVerdict::kGood) return handle_bad_step(verdict, last);
  rollback_limit_.good_step(last.step);
}

StepVerdict TrainingRun::judge(const Unjudged& step) {
  if (step.output.spike) return StepVerdict::kSpike;
  if (step.copied) step.copied->synchronize();
  // GradScaler tries a smaller scale: nothing is wrong as long as the loss is a number.
  const bool good =
      step.not_finite.item<float>() == 0.0F ||
      (trainer_.scaler().enabled() && std::isfinite(trainer_.global_mean_loss(step.output)));
  return good ? StepVerdict::kGood : StepVerdict::kNotFinite;
}

void TrainingRun::handle_bad_step(StepVerdict verdict, const Unjudged& bad) {
  trainer_.guard().count_bad(bad.step);
  const std::string what =
      fmt::format("Step {}: {}: loss {}, grad norm {}; {}", bad.step,
                  verdict == StepVerdict::kSpike ? "spike" : "NaN or Inf",
                  digits_of(trainer_.global_mean_loss(bad.output)),
                  digits_of(bad.output.grad_norm.item<float>()), samples_of(bad.at));
  switch (config_.trainer.bad_step_policy) {
    case BadStepPolicy::kSkip:
      break;
    case BadStepPolicy::kRollback:
      if (!rollback_limit_.allows_another()) {
        throw FinalError(fmt::format(
            "{}; {} rollbacks in a row have not led beyond step {}: training diverges; lower "
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
  monitor_.enter_for(Phase::kStart, 0);
  std::optional<OpenedSnapshot> snapshot;
  if (keeper_) {
    keeper_->before_update();
    keeper_->wait();
    snapshot = folder_.find();
    // Theirs are steps that are to be made in another way now, and they would be found as newer.
    if (snapshot) keeper_->forget_memory();
  }
  const std::string json = group_.broadcast_text(snapshot ? snapshot->meta.to_json() : "");
  if (json.empty()) return false;
  unjudged_.reset();
  const StepGuard known = trainer_.guard();
  const auto meta = SnapshotMeta::from_json(json);
  trainer_.restore(meta, snapshot ? &*snapshot : nullptr);
  trainer_.guard().remember(known);
  trainer_.guard().leave_out(bad_step);
  loader_ = trainer_.make_loader();
  if (group_.is_main()) {
    log_.warning(fmt::format("Back to the snapshot of step {}; step {} will be left out", meta.step,
                             bad_step));
  }
  return true;
}

void TrainingRun::after_step(bool epoch_ended) {
  const auto& every = config_.trainer;
  const int64_t step = trainer_.step();
  const bool save_fixed = (epoch_ended && trainer_.cursor().epoch % every.save_every == 0) ||
                          divides(every.save_every_steps, step);
  if (epoch_ended || finished() || divides(every.eval_every_steps, step))
    trainer_.set_evaluation_due(true);
  if (stop_signal_ != 0) return;  // the due evaluation is made when training goes on
  if (trainer_.evaluation_due()) run_evaluation();
  if (!keeper_ || finished()) return;
  const auto& best = trainer_.best_eval();
  const bool save_best = every.load_best_model_at_end && best && best->step == step;
  const bool save_between = keeper_->due(step);
  const bool save_now = save_fixed || save_best;
  if (!save_now && !save_between && !keeper_->keeps_memory()) return;
  throughput_.pause();
  const auto state = capture();
  if (save_now || save_between) save(state, save_now ? SaveReason::kFixed : SaveReason::kInterval);
  keeper_->save_to_memory(state);
  throughput_.resume();
}

void TrainingRun::run_evaluation() {
  throughput_.pause();
  const auto result = trainer_.evaluate_now(
      [this] {
        monitor_.enter(Phase::kEvaluation);
        return StopSignal::pending() == 0;
      },
      [this] { monitor_.enter(Phase::kEvaluation, "all_reduce"); });
  if (trainer_.evaluation_due())  // broken off
    stop_signal_ = static_cast<int>(group_.all_reduce_max_async(StopSignal::pending()).wait());
  if (result && group_.is_main()) {
    const DataCursor& cursor = trainer_.cursor();
    const int64_t epoch = cursor.position == 0 ? cursor.epoch : cursor.epoch + 1;
    log_.info(fmt::format("Epoch {} | Step {} | {}", epoch, trainer_.step(), eval_text(*result)));
  }
  throughput_.resume();
}

TrainingState TrainingRun::capture() {
  TrainingState state = trainer_.capture();
  state.meta.run_id = folder_.run_id();
  return state;
}

void TrainingRun::save(const TrainingState& state, SaveReason reason) {
  if (keeper_->save(state, reason)) saved_step_ = state.meta.step;
}

void TrainingRun::save_last() {
  if (!keeper_) return;
  // Nothing was trained and nothing is to be said: the file stays as it is.
  const bool as_it_was = trainer_.step() == first_step_ && saved_step_ == trainer_.step();
  if (!as_it_was) keeper_->finish(capture());
  keeper_->finish_sending(time_to_send());
  if (stop_signal_ == 0) keeper_->forget_memory();
}

// The other ranks wait in a barrier meanwhile, and who sent the signal waits for us to end.
std::chrono::milliseconds TrainingRun::time_to_send() const {
  constexpr double kLongest = 60.0;
  constexpr double kAfterSignal = 10.0;
  const double longest = stop_signal_ == 0 ? kLongest : kAfterSignal;
  const double seconds = std::min(longest, config_.distributed.timeout_s / 2);
  return std::chrono::milliseconds(static_cast<int64_t>(1e3 * seconds));
}

void TrainingRun::say_where_time_goes() {
  if (!account_) return;
  for (const auto& line : account_->text()) log_.info(line);
}

void TrainingRun::log_step(const StepOutput& output, int64_t epoch) {
  monitor_.enter(Phase::kAllReduce, "all_reduce");
  last_loss_ = trainer_.global_mean_loss(output);
  const auto seconds =
      group_.gather_doubles(before_backward_ / static_cast<double>(steps_since_log_));
  before_backward_ = 0.0;
  steps_since_log_ = 0;
  if (!group_.is_main()) return;
  const double rate = throughput_.lap();
  std::string line = fmt::format(
      "Epoch {} | Step {} | Train Loss {:.6f} | lr {:.3e} | grad norm {:.4f} | {} tok/s", epoch + 1,
      trainer_.step(), last_loss_, output.learning_rate, output.grad_norm.item<float>(),
      short_number(rate));
  if (trainer_.scaler().enabled())
    line += fmt::format(" | loss scale {}", trainer_.scaler().state().scale);
  if (trainer_.scaler().enabled() && output.not_finite.item<float>() != 0.0F)
    line += " | gradients overflowed: update skipped";
  log_.info(line);
  log_skew(seconds);
}

// Up to the backward pass nobody waits for anybody: who takes longer there holds up the others.
void TrainingRun::log_skew(const std::vector<double>& seconds) {
  constexpr double kNotable = 2.0;       // times the median
  constexpr double kNotableTime = 0.01;  // s
  std::vector<double> sorted = seconds;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  const auto slowest = std::max_element(seconds.begin(), seconds.end());
  if (*slowest < kNotable * *middle || *slowest < *middle + kNotableTime) return;
  log_.info(
      fmt::format("Slow rank: rank {} takes {:.1f} ms for data and forward pass, the median "
                  "rank {:.1f} ms",
                  slowest - seconds.begin(), 1e3 * *slowest, 1e3 * *middle));
}

void TrainingRun::log_start() const {
  const auto& c = config_.trainer;
  const auto& sampler = trainer_.sampler();
  const Task& task = trainer_.task();
  const auto amp = trainer_.amp_dtype();
  for (const auto& line : task.describe()) log_.info(line);
  log_.info(fmt::format(
      "Batch: {} samples per micro-batch x {} on {} = {} samples, {} {} per step; {} steps per "
      "epoch",
      c.batch_size, counted(trainer_.batch_plan().micro_batches, "micro-batch"),
      counted(group_.size(), "rank"), sampler.global_batch(),
      sampler.global_batch() * task.units_per_sample(), task.unit(), sampler.steps_per_epoch()));
  if (!trainer_.batch_plan().note.empty()) log_.info(trainer_.batch_plan().note);
  const auto& plan = trainer_.device_plan();
  log_.info(fmt::format(
      "Device: {}, backend {}, precision {}, {} threads per rank", plan.device.str(),
      group_.c10d() ? plan.backend_name() : "none (one process)",
      amp ? std::string(c10::toString(*amp)) + " autocast" : "float32", torch::get_num_threads()));
  log_.info(fmt::format("Snapshots: {}", c.snapshot_path));
}

void TrainingRun::log_end() {
  const auto& c = config_.trainer;
  const bool stopped_early = trainer_.early_stopping().stops();
  const std::string state = stop_signal_ == 0
                                ? stopped_early ? "Training stopped early" : "Training finished"
                                : fmt::format("Stopped by signal {} and saved", stop_signal_);
  log_.info(fmt::format("{}: {} steps ({} in all), {} epochs, {:.1f} s, {} tok/s", state,
                        trainer_.step() - first_step_, trainer_.step(), trainer_.cursor().epoch,
                        throughput_.seconds_since_start(), short_number(throughput_.average())));
  log_.info(trainer_.last_eval() ? fmt::format("Last train loss {:.6f}, eval loss {:.6f}",
                                               last_loss_, trainer_.last_eval()->loss)
                                 : fmt::format("Last train loss {:.6f}", last_loss_));
  if (trainer_.guard().bad_steps() > 0)
    log_.info(fmt::format("Bad steps: {}", trainer_.guard().bad_steps()));
  const std::string summary = config_.hydra.run_dir + "/run_summary.json";
  account_->count_saves(keeper_->counts());
  say_where_time_goes();
  try {
    account_->write_json(summary, stop_signal_ == 0 ? "finished" : "preempted");
  } catch (const RunError& error) {
    log_.warning(fmt::format("no account of this run: {}", error.what()));
  }
  log_.info(fmt::format("Snapshot: {}; log: {}; account: {}", c.snapshot_path,
                        config_.hydra.log_file(), summary));
  const auto* best = best_entry(folder_.entries());
  if (best != nullptr)
    log_.info(fmt::format("Best snapshot: {} (step {}, eval loss {:.6f})", folder_.path_of(*best),
                          best->step, *best->eval_loss));
  const bool end_with_best = c.load_best_model_at_end && best != nullptr;
  log_.info(stop_signal_ == 0
                ? fmt::format("Next: trainer generate --snapshot {} --prompt TEXT",
                              end_with_best ? folder_.path_of(*best) : c.snapshot_path)
                : std::string("Next: the same command goes on from the snapshot"));
}

}  // namespace ddp::train
