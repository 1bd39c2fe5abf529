#include "trainer/run/training_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/metrics/memory.h"
#include "trainer/model/blocks/attention.h"
#include "trainer/parallel/device/collective_wait.h"
#include "trainer/parallel/device/cuda_module.h"
#include "trainer/parallel/device/device_progress.h"
#include "trainer/run/run_end.h"
#include "trainer/run/state/shared_snapshot.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/group_error.h"
#include "trainer/runtime/process/stop_signal.h"
#include "trainer/snapshot/ram_snapshots.h"

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

TrainingRun::TrainingRun(const Config& config, ProcessGroup& group, Trainer& trainer,
                         SnapshotFolder& folder, RemoteSnapshots* remote, RunMonitor& monitor,
                         Log& log, const std::string& resumed_from, bool sharded)
    : config_(config),
      group_(group),
      trainer_(trainer),
      folder_(folder),
      monitor_(monitor),
      log_(log),
      sharded_(sharded),
      profile_(config, group.rank(), trainer.device_plan().device,
               steps_of_run(config.trainer, trainer.sampler().steps_per_epoch())),
      duties_(duties()),
      first_step_(trainer.step()) {
  if (group.is_main()) records_ = std::make_unique<RunRecords>(config, log);
  if (group.is_main() || sharded) {
    const auto shard =
        sharded ? std::optional(ShardRank{group.rank(), group.size()}) : std::nullopt;
    keeper_ = std::make_unique<SnapshotKeeper>(
        config.trainer, folder, remote, monitor, log,
        SnapshotKeeper::Resumed{resumed_from, trainer.step()}, shard, [this] { records_->flush(); },
        [this] { write_unfinished_account(); });
  }
  if (!group.is_main()) return;
  account_ = std::make_unique<RunAccount>(folder.path(), trainer.step(), summary_file());
  // Training that resumes from a copy in memory has not saved that step.
  if (resumed_from == folder.path()) saved_step_ = trainer.step();
}

bool TrainingRun::finished() const {
  return trainer_.early_stopping().stops() ||
         run_is_complete(config_.trainer, trainer_.step(), trainer_.cursor().epoch);
}

FitResult TrainingRun::fit() {
  if (group_.is_main()) log_start();
  if (records_) records_->begin_after(first_step_);
  if (finished()) return nothing_to_train();
  trainer_.prepare_task([this] { monitor_.enter_for(Phase::kEvaluation, kLongWork); });
  loader_ = trainer_.make_loader();
  throughput_ = Throughput([device = trainer_.device_plan().device] { wait_for_device(device); });
  if (trainer_.evaluation_due()) perform(evaluation(), {});
  train_until_end();
  if (profile_.recording())
    profiling([this] { profile_.finish(trainer_.strategy().sync().times()); });
  loader_.reset();
  const bool evaluated = trainer_.last_eval() && trainer_.last_eval()->step == trainer_.step();
  if (stop_signal_ == 0 && !evaluated) perform(evaluation(), {});
  save_last();
  monitor_.enter_for(Phase::kEnd, 0);
  const auto memory = gather_peak_memory();
  group_.barrier();
  if (group_.is_main()) log_end(memory);
  FitResult result = this->result();
  if (trainer_.step() > first_step_) result.train_loss = last_loss_;
  run_test(/*trained=*/true);
  check_last(result);
  return result;
}

PeakMemory TrainingRun::gather_peak_memory() {
  PeakMemory peaks{group_.gather_doubles(static_cast<double>(memory_use().peak))};
  const torch::Device device = trainer_.device_plan().device;
  if (device.is_cuda()) {
    const auto peak = loaded_cuda_module()->peak_memory_bytes(device.index());
    peaks.device = group_.gather_doubles(static_cast<double>(peak));
  }
  return peaks;
}

FitResult TrainingRun::result() const {
  FitResult result{stop_signal_, {}, {}};
  const bool best = config_.trainer.load_best_model_at_end && stop_signal_ == 0;
  const auto& evaluation = best ? trainer_.best_eval() : trainer_.last_eval();
  if (evaluation) result.eval_loss = evaluation->loss;
  return result;
}

// On every rank, which all have the same result. In float16 an overflow is the likely cause, and
// the run a failure; elsewhere a bad step has been judged when it was made.
void TrainingRun::check_last(const FitResult& result) const {
  if (stop_signal_ != 0 || !result.eval_loss || std::isfinite(*result.eval_loss)) return;
  const std::string text = fmt::format(
      "the loss of the last evaluation is {}: the run has ended, but its model is useless; lower "
      "optimizer_config.learning_rate{}, and start over with another trainer_config.snapshot_path",
      digits_of(*result.eval_loss),
      trainer_.scaler().enabled() ? " or set trainer_config.amp_dtype=bfloat16" : "");
  if (trainer_.scaler().enabled()) throw GroupError(text);
  log_.warning(text);
}

FitResult TrainingRun::nothing_to_train() {
  log_.info(trainer_.early_stopping().stops()
                ? nothing_after_early_stop_text(config_.trainer, trainer_.step())
                : nothing_to_train_text(config_.trainer, trainer_.step(), trainer_.cursor().epoch));
  const bool was_due = trainer_.evaluation_due();
  perform(evaluation(), {});
  // A signal had broken this evaluation off: its result belongs to the snapshot.
  if (was_due && !trainer_.evaluation_due()) saved_step_ = -1;
  save_last();
  const FitResult result = this->result();
  run_test(/*trained=*/false);
  check_last(result);
  return result;
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
    const int64_t epoch = trainer_.cursor().epoch;
    const int64_t step = trainer_.step() + 1;
    if (profile_.begins_with(step))
      profiling([&] {
        trainer_.strategy().sync().measure_times();
        profile_.start(step);
      });
    monitor_.begin_step(step);
    profile_.begin_step(step);
    if (!one_step()) return profile_.end_step();
    if (!votes_) send_votes(step);  // a step that was left out
    monitor_.enter(Phase::kAllReduce, "all_reduce");
    apply_votes(votes_->wait_all());
    votes_.reset();
    monitor_.end_step();
    profile_.end_step();
    if (group_.is_main()) step_done();
    if (StopSignal::take_report_wish()) log_time_breakdown();
    after_step(trainer_.cursor().epoch > epoch);  // a rollback may lead to an earlier one
  }
}

// Starting the profiler and writing its trace take a while, on every rank.
template <typename Work>
void TrainingRun::profiling(const Work& work) {
  monitor_.enter_for(Phase::kProfiling, kLongWork);
  throughput_.pause();
  work();
  throughput_.resume();
}

void TrainingRun::say_warnings() {
  for (const auto& line : trainer_.task().take_warnings()) log_.warning(line);
  if (const auto note = trainer_.strategy().take_graphs_note(); note && group_.is_main())
    note->warns ? log_.warning(note->text) : log_.setup(note->text);
}

void TrainingRun::step_done() {
  account_->step_done(trainer_.step(), keeper_->counts());
  records_->step_done(trainer_.step(), trainer_.cursor().epoch + 1,
                      steps_of_run(config_.trainer, trainer_.sampler().steps_per_epoch()));
  if (monitor_.times().count() != 1) return;
  log_.setup(monitor_.start_times().text());
  const std::string note = attention_note();
  if (!note.empty()) log_.setup(note);
}

bool TrainingRun::one_step() {
  const int64_t step = trainer_.step() + 1;
  const DataCursor at = trainer_.cursor();
  if (trainer_.guard().leaves_out(step)) {
    trainer_.leave_out_step(*loader_);
    log_.info(fmt::format("Step {}: left out, as decided before", step));
    judge_last();
    return true;
  }
  // NCCL's kernels wait on the device, and the host does wherever it reads a number.
  std::optional<CollectiveWait> waiting;
  if (trainer_.device_plan().device.is_cuda()) waiting.emplace();
  StepOutput output = trainer_.train_step(
      *loader_, monitor_,
      [this, step] {
        if (keeper_) keeper_->before_update();
        send_votes(step);
      },
      [this] { return gives_up_step(); });
  if (output.abandoned) return false;
  throughput_.add(trainer_.sampler().global_batch() * trainer_.task().units_per_sample());
  before_backward_ += monitor_.seconds_before_backward();
  ++steps_since_log_;
  say_warnings();
  const bool first = step == first_step_ + 1;
  if (first || step % config_.trainer.log_every_steps == 0 || finished())
    log_step(output, at.epoch);
  defer_check(std::move(output), at);
  return true;
}

// On a GPU the flag is read when the next step has been queued: nobody waits for the device here.
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
  if (group_.is_main()) {
    records_->begin_after(meta.step);
    log_.warning(fmt::format("Back to the snapshot of step {}; step {} will be left out", meta.step,
                             bad_step));
  }
  return true;
}

// With the weights that the run ends with.
void TrainingRun::run_test(bool trained) {
  if (stop_signal_ != 0 || trainer_.task().test() == nullptr) return;
  const RunMonitor::LongWork promise(monitor_, kLongWork);
  go_to_best();
  const auto result = trainer_.test_now(
      [this] {
        monitor_.enter(Phase::kEvaluation);
        return StopSignal::pending() == 0;
      },
      [this] { monitor_.enter(Phase::kEvaluation, "all_reduce"); });
  monitor_.enter_for(Phase::kEnd, 0);
  if (result && group_.is_main()) log_test(*result, trained);
}

void TrainingRun::go_to_best() {
  const auto& best = trainer_.best_eval();
  if (!config_.trainer.load_best_model_at_end || !best || best->step == trainer_.step()) return;
  std::optional<OpenedSnapshot> snapshot;
  if (group_.is_main()) {
    const auto* entry = best_entry(folder_.entries());
    if (entry != nullptr) snapshot = open_snapshot(folder_.path_of(*entry));
  }
  const std::string json = group_.broadcast_text(snapshot ? snapshot->meta.to_json() : "");
  if (json.empty()) return;
  if (sharded_) snapshot = open_as_rank_zero(std::move(snapshot), group_);
  trainer_.restore(SnapshotMeta::from_json(json), snapshot ? &*snapshot : nullptr);
}

// Once the last step has been judged: a rollback must not lead to the step that it is to leave out.
TrainingState TrainingRun::capture() {
  const auto begin = SnapshotKeeper::Clock::now();
  if (keeper_ && saves_together() && !sharded_) keeper_->wait();  // one gathered state at a time
  TrainingState state = sharded_ ? trainer_.capture_shard() : trainer_.capture();
  if (keeper_)
    keeper_->count_capture(
        std::chrono::duration<double>(SnapshotKeeper::Clock::now() - begin).count());
  state.meta.run_id = folder_.run_id();
  if (!state.shard) return state;
  state.shard->id.run_id = folder_.run_id();
  state.shard->id.attempt = folder_.attempt();
  return state;
}

// "" on every rank, which keeps the last snapshot, if rank 0 cannot see which names are taken.
std::string TrainingRun::stem_for_shards(int64_t step) {
  std::string stem;
  try {
    if (group_.is_main()) stem = folder_.stem_for_shards(step);
  } catch (const std::exception& error) {
    log_.warning(fmt::format("cannot save the snapshot of step {}: {}; training continues", step,
                             error.what()));
  }
  return group_.broadcast_text(stem);
}

void TrainingRun::save(const TrainingState& state, SaveReason reason) {
  if (!state.shard) {
    if (keeper_->save(state, reason)) saved_step_ = state.meta.step;
    return;
  }
  TrainingState named = state;
  named.shard->stem = stem_for_shards(state.meta.step);
  if (named.shard->stem.empty()) return;
  keeper_->save(named, reason);
  saved_step_ = state.meta.step;
  shards_pending_ = true;
}

// Nothing was trained and nothing is to be said: the file stays as it is.
bool TrainingRun::last_state_is_saved() {
  const bool saved = trainer_.step() == first_step_ && saved_step_ == trainer_.step();
  if (!saves_together()) return saved;
  return group_.all_reduce_max_async(group_.is_main() && !saved ? 1 : 0).wait() == 0;
}

void TrainingRun::save_last() {
  if (!keeper_ && !trainer_.holds_shards()) return;
  const RunMonitor::LongWork promise(monitor_, kLongWork);
  monitor_.enter_for(Phase::kStaging, kLongWork);
  if (sharded_) return save_last_shards();
  std::optional<TrainingState> state;
  if (!last_state_is_saved()) state = capture();
  if (!keeper_) return;
  if (state) keeper_->finish(*state);
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

}  // namespace ddp::train
