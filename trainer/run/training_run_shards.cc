// Saves in which every rank writes a shard: what the ranks agree on, always in the training thread.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "launcher/worker_contract.h"
#include "trainer/run/training_run.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/process/stop_signal.h"

namespace ddp::train {
namespace {

/// The place of each in what is reduced by maximum in every step.
enum Vote : std::size_t {
  kSignal,
  kLongStep,  // steps_are_long_, as one node may leave less time than another
  kSnapshot,
  kUnwritten,
  kFailedShard,
  kNoMemoryCopy,
  kVotes
};

}  // namespace

// A third of the time to SIGKILL: in the rest the state is saved and sent. Slurm and Kubernetes
// leave 30 s by default.
std::chrono::milliseconds TrainingRun::stop_patience() {
  constexpr double kDefault = 30.0, kLeast = 0.1, kMost = 3600.0;
  const char* text = std::getenv(launch::kShutdownTimeout);
  const double grace = text == nullptr ? kDefault : std::strtod(text, nullptr);
  return std::chrono::milliseconds(std::llround(1e3 * std::clamp(grace, kLeast, kMost) / 3));
}

std::vector<int64_t> TrainingRun::step_votes(int64_t step) {
  std::vector<int64_t> votes(kVotes, 0);
  votes[kSignal] = StopSignal::pending();
  const double patience = std::chrono::duration<double>(stop_patience()).count();
  votes[kLongStep] = monitor_.seconds_in_step() >= patience / 2 ? 1 : 0;
  if (!saves_together()) return votes;
  // What is gathered is a copy: it is not made while the previous one is being written.
  const bool due =
      group_.is_main() && keeper_->due(step) && (sharded_ || !keeper_->skips_if_busy());
  votes[kSnapshot] = due ? 1 : 0;
  if (!sharded_) return votes;
  const ShardProgress progress = keeper_->shard_progress();
  votes[kUnwritten] = progress == ShardProgress::kWriting ? 1 : 0;
  votes[kFailedShard] = progress == ShardProgress::kFailed ? 1 : 0;
  votes[kNoMemoryCopy] = wants_memory_copy() ? 0 : 1;
  return votes;
}

// Every rank reads the same signal and stops after the same step.
void TrainingRun::send_votes(int64_t step) {
  votes_ = group_.all_reduce_max_async(step_votes(step));
}

bool TrainingRun::gives_up_step() {
  if (group_.size() > 1) {
    if (!steps_are_long_) return false;
    monitor_.meet(Phase::kBackward, "all_reduce");
  }
  const int signal = StopSignal::pending_for() < stop_patience() ? 0 : StopSignal::pending();
  stop_signal_ = static_cast<int>(group_.all_reduce_max_async(signal).wait());
  if (stop_signal_ == 0) return false;
  log_.info(fmt::format("Step {} is abandoned: it would not end in time after signal {}",
                        trainer_.step() + 1, stop_signal_));
  return true;
}

// The values are those before the update: of a save that began after an earlier one.
void TrainingRun::apply_votes(const std::vector<int64_t>& votes) {
  stop_signal_ = static_cast<int>(votes[kSignal]);
  // To ask the other ranks after each micro-batch of such a step costs nothing.
  steps_are_long_ = votes[kLongStep] != 0;
  snapshot_wished_ = votes[kSnapshot] != 0;
  memory_copy_wished_ = sharded_ && votes[kNoMemoryCopy] == 0;
  if (shards_pending_) decide_on_shards(votes[kUnwritten] == 0, votes[kFailedShard] != 0);
}

// A collective where a shard failed. Without one, nobody waits for anybody here.
void TrainingRun::decide_on_shards(bool all_written, bool failed) {
  if (!all_written && !failed) return;
  if (failed && !all_written) return;  // the others are still writing: they would be orphans
  shards_pending_ = false;
  if (!failed) return keeper_->commit();
  const bool full = keeper_->shard_found_disk_full();
  const bool any_full = group_.all_reduce_max_async(full ? 1 : 0).wait() != 0;
  const auto failures = group_.gather_texts(keeper_->shard_failure());
  const auto first = std::find_if(failures.begin(), failures.end(),
                                  [](const std::string& failure) { return !failure.empty(); });
  saved_step_ = -1;
  keeper_->give_up(first == failures.end()
                       ? "a rank could not write its shard"
                       : fmt::format("rank {}: {}", first - failures.begin(), *first),
                   any_full);
}

// Waits until the last save is a snapshot, or has been given up. A collective.
void TrainingRun::settle_shards() {
  if (!sharded_ || !keeper_) return;
  if (shards_pending_) {
    keeper_->wait();
    const bool failed = keeper_->shard_progress() == ShardProgress::kFailed;
    decide_on_shards(/*all_written=*/true, group_.all_reduce_max_async(failed ? 1 : 0).wait() != 0);
  }
  keeper_->wait();
}

void TrainingRun::take_sharded_snapshot(bool fixed) {
  const bool to_disk = fixed || snapshot_wished_;
  if (to_disk) settle_shards();
  const auto state = capture();
  if (to_disk) save(state, fixed ? SaveReason::kFixed : SaveReason::kInterval);
  if (memory_copy_wished_ && wants_memory_copy()) keeper_->save_to_memory(state);
}

bool TrainingRun::wants_memory_copy() const {
  return keeper_->wants_memory_copy(trainer_.device_plan().device.is_cuda());
}

bool TrainingRun::is_saved_everywhere() {
  const bool missing = group_.is_main() && !keeper_->has_saved(trainer_.step());
  return group_.all_reduce_max_async(missing ? 1 : 0).wait() == 0;
}

void TrainingRun::save_last_shards() {
  settle_shards();
  if (!last_state_is_saved()) {
    bool saved = is_saved_everywhere();
    for (int attempt = 0; attempt < 2 && !saved; ++attempt) {
      save(capture(), SaveReason::kFixed);
      keeper_->wait();
      keeper_->before_update();
      settle_shards();
      saved = is_saved_everywhere();
    }
    if (!saved && group_.is_main()) throw RunError(keeper_->unsaved_text(trainer_.step()));
  }
  if (group_.is_main()) keeper_->finish_sending(time_to_send());
  if (stop_signal_ == 0) keeper_->forget_memory();
}

}  // namespace ddp::train
