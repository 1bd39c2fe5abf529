#include "trainer/run/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/config/config.h"
#include "trainer/metrics/memory.h"
#include "trainer/model/blocks/attention.h"
#include "trainer/parallel/device/collective_wait.h"
#include "trainer/parallel/device/cuda_module.h"
#include "trainer/run/run_end.h"
#include "trainer/run/state/shared_snapshot.h"
#include "trainer/runtime/process/stop_signal.h"
#include "trainer/snapshot/ram_snapshots.h"

namespace ddp::train {
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
      profile_(config.profile, config.hydra.run_dir, group.rank(), trainer.device_plan().device,
               trainer.steps_in_all()),
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
  run_test(/*is_new=*/true);
  if (group_.is_main()) end_account(memory);
  if (records_) records_->end_tracking(time_to_send());
  check_last(result);
  result.stop_signal = stop_signal_;
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

FitResult TrainingRun::nothing_to_train() {
  log_.info(trainer_.early_stopping().stops()
                ? nothing_after_early_stop_text(config_.trainer, trainer_.step())
                : nothing_to_train_text(config_.trainer, trainer_.step(), trainer_.cursor().epoch));
  const bool was_due = trainer_.evaluation_due();
  perform(evaluation(), {});
  // A signal had broken this evaluation off: its result belongs to the snapshot.
  if (was_due && !trainer_.evaluation_due()) saved_step_ = -1;
  save_last();
  FitResult result = this->result();
  const bool ended_before = account_ && account_->was_finished();
  run_test(/*is_new=*/!ended_before);
  if (account_ && !ended_before) {
    account_->count_saves(keeper_->counts());
    end_account({});
  }
  if (records_) records_->end_tracking(time_to_send());
  check_last(result);
  result.stop_signal = stop_signal_;
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
  records_->step_done(trainer_.step(), trainer_.cursor().epoch + 1, trainer_.steps_in_all());
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

// With the weights that the run ends with.
void TrainingRun::run_test(bool is_new) {
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
  if (!result)  // broken off
    stop_signal_ = static_cast<int>(group_.all_reduce_max_async(StopSignal::pending()).wait());
  if (!group_.is_main()) return;
  if (result)
    log_test(*result, is_new);
  else
    log_.info("Test broken off by the signal; the same command runs it again");
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
  const std::chrono::duration<double> after_signal = stop_patience();
  const double longest = stop_signal_ == 0 ? kLongest : std::min(kLongest, after_signal.count());
  const double seconds = std::min(longest, config_.distributed.timeout_s / 2);
  return std::chrono::milliseconds(static_cast<int64_t>(1e3 * seconds));
}

}  // namespace ddp::train
