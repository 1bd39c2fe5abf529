#include "trainer/snapshot/snapshot_keeper.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <utility>

#include "launcher/worker_contract.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"
#include "trainer/runtime/process/stop_signal.h"
#include "trainer/snapshot/shard_file.h"
#include "trainer/snapshot/snapshot_interval.h"

namespace ddp::train {
namespace {

using Clock = SnapshotKeeper::Clock;

double seconds_from(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string shared_memory_folder() {
  const char* folder = std::getenv(launch::kShmDir);
  return folder != nullptr ? folder : "";
}

/// Makes the GPU of the tensors the calling thread's. Without, some calls of CUDA would begin a
/// context on the first one, which is another rank's.
void use_device_of(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.is_cuda()) continue;
    c10::impl::VirtualGuardImpl(tensor.device().type()).setDevice(tensor.device());
    return;
  }
}

double thread_cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// With what opening the shards of a copy takes, without an index.
Metadata metadata_in_memory(const TrainingState& state) {
  Metadata metadata = state.meta.to_metadata();
  if (!state.shard) return metadata;
  metadata.merge(shard_metadata(state.shard->id, state.shard->pieces));
  metadata[kTensorsKey] = tensors_json(state.shard->tensors);
  return metadata;
}

/// In the order of PublishPhase.
constexpr Phase kPhases[] = {Phase::kWriting, Phase::kRename, Phase::kPublished};

}  // namespace

SnapshotKeeper::SnapshotKeeper(const TrainerConfig& config, SnapshotFolder& folder,
                               RemoteSnapshots* remote, RunMonitor& monitor, Log& log,
                               Resumed resumed, const std::optional<ShardRank>& shard,
                               std::function<void()> flush_records, std::function<void()> published)
    : config_(config),
      folder_(folder),
      remote_(remote),
      monitor_(monitor),
      log_(log),
      resumed_(std::move(resumed)),
      shard_rank_(shard),
      flush_records_(std::move(flush_records)),
      published_(std::move(published)),
      keeps_memory_(config.ram_snapshots) {
  if (remote_ != nullptr) remote_->publish();  // what an earlier run could not send
  if (keeps_memory_ && shared_memory_folder().empty()) {
    if (!shard_rank_ || shard_rank_->rank == 0) {
      log_.warning(
          "trainer_config.ram_snapshots: no directory in shared memory; start trainer with "
          "ddp-run");
    }
    keeps_memory_ = false;
  }
}

SnapshotKeeper::~SnapshotKeeper() = default;

bool SnapshotKeeper::due(int64_t step) const {
  const AutoNumber& every = config_.snapshot_every;
  const bool uncommitted =
      shard_rank_ && (shard_progress() != ShardProgress::kNone || disk_job_.busy());
  if (uncommitted && (every.automatic || config_.snapshot_if_busy == IfBusy::kSkip)) return false;
  if (!every.automatic) return every.value > 0 && step % static_cast<int64_t>(every.value) == 0;
  const std::lock_guard lock(mutex_);
  return seconds_from(last_begin_) >=
         snapshot_interval({stall_of_last_ + cpu_of_last_, busy_seconds_, bytes_of_last_}, config_);
}

bool SnapshotKeeper::skips_if_busy() {
  if (config_.snapshot_if_busy != IfBusy::kSkip || !disk_job_.busy()) return false;
  const std::lock_guard lock(mutex_);
  ++counts_.skipped;
  return true;
}

bool SnapshotKeeper::save(const TrainingState& state, SaveReason reason) {
  const auto begin = Clock::now();
  if (reason == SaveReason::kInterval && !state.shard && skips_if_busy()) return false;
  wait();
  if (!state.is_copy && !buffer_) buffer_ = std::make_shared<StateBuffer>(state.tensors);
  const auto copy = state.is_copy ? StateBuffer::of_copy(state.tensors) : buffer_;
  {
    const std::lock_guard lock(mutex_);
    last_begin_ = begin;
    bytes_of_last_ = copy->size();
    computes_on_cpu_ = state.ready == nullptr;
    last_saved_step_started_ = state.meta.step;
    stall_of_last_ = std::exchange(stall_of_next_, 0.0);
    if (state.shard) progress_ = ShardProgress::kWriting;
  }
  Save copied{state.meta, reason, begin, {}, copy};
  if (state.shard) copied.shard = state.shard->without_values();
  disk_job_.start({[this, state, copy] {
                     use_device_of(state.tensors);
                     monitor_.faults().at(Phase::kStaging, state.meta.step);
                     if (!state.is_copy) copy->begin_copy(state.tensors, state.ready);
                   },
                   [this, copied = std::move(copied)] { write(copied); }});
  count_stall(seconds_from(begin));
  return true;
}

// A run that resumed beyond the best step, whose snapshot was still being written, would lack it.
bool SnapshotKeeper::wants_memory_copy(bool on_device) const {
  const bool saving = disk_job_.busy() || shard_progress() != ShardProgress::kNone;
  if (saving && config_.load_best_model_at_end) return false;
  return keeps_memory_ && !(on_device && memory_job_.busy());
}

void SnapshotKeeper::open_memory() {
  if (ram_) return;
  const std::string folder = shared_memory_folder();
  ram_ = shard_rank_
             ? std::make_unique<RamSnapshots>(folder, folder_.path(), *shard_rank_, resumed_.step)
             : std::make_unique<RamSnapshots>(folder, folder_.path(), resumed_.file);
}

// On CPUs the next update waits for all of it: the copy always holds the last step. On a GPU
// the memory is reserved here, as page-locking many GB holds up whoever calls CUDA: not the next
// step, which has promised to be short.
void SnapshotKeeper::save_to_memory(const TrainingState& state) {
  if (!keeps_memory_) return;
  open_memory();
  if (state.ready && !reserve_memory(state)) return;
  std::vector<StatePiece> pieces;
  if (state.shard) pieces = state.shard->without_values().pieces;
  auto finish = [this, metadata = metadata_in_memory(state), pieces = std::move(pieces)] {
    finish_in_memory(metadata, pieces);
  };
  if (state.ready) {
    memory_job_.start({[this, state] {
                         use_device_of(state.tensors);
                         begin_in_memory(state);
                       },
                       std::move(finish)});
  } else {
    memory_job_.start({[this, state, finish = std::move(finish)] {
                         begin_in_memory(state);
                         finish();
                       },
                       nullptr});
  }
}

bool SnapshotKeeper::reserve_memory(const TrainingState& state) {
  const auto begin = Clock::now();
  try {
    ram_->reserve(metadata_in_memory(state), state.tensors);
  } catch (const std::exception& error) {
    memory_failed(error);
  }
  count_stall(seconds_from(begin));
  return keeps_memory_;
}

// An exception would end the process: the thread has nobody to hand it to.
void SnapshotKeeper::begin_in_memory(const TrainingState& state) {
  try {
    ram_->begin(metadata_in_memory(state), state.tensors, state.ready);
  } catch (const std::exception& error) {
    memory_failed(error);
  }
}

void SnapshotKeeper::finish_in_memory(const Metadata& metadata,
                                      const std::vector<StatePiece>& pieces) {
  if (!keeps_memory_) return;
  try {
    if (!ram_->finish(metadata, pieces)) return;
  } catch (const std::exception& error) {
    return memory_failed(error);
  }
  const std::lock_guard lock(mutex_);
  ++counts_.in_memory;
}

void SnapshotKeeper::memory_failed(const std::exception& error) {
  log_.warning(fmt::format("trainer_config.ram_snapshots is off: {}", error.what()));
  keeps_memory_ = false;
}

// The automatic interval may be a second: a line for each would bury the rest of the log.
void SnapshotKeeper::say_saved(const SnapshotMeta& meta, SaveReason reason,
                               Clock::time_point begin) {
  constexpr double kQuiet = 60.0;  // s
  const bool quiet = reason == SaveReason::kInterval && config_.snapshot_every.automatic;
  if (quiet && last_said_ && seconds_from(*last_said_) < kQuiet) {
    ++unsaid_;
    return;
  }
  const std::string others =
      unsaid_ > 0 ? fmt::format("; {} more since the last message", unsaid_) : "";
  log_.info(fmt::format("Snapshot saved at epoch {}, step {}: {} ({}, {:.2f} s{})",
                        meta.cursor.epoch_number(), meta.step, folder_.path(),
                        size_text(static_cast<double>(folder_.entries().front().bytes)),
                        seconds_from(begin), others));
  last_said_ = Clock::now();
  unsaid_ = 0;
}

void SnapshotKeeper::stop_saving(const SupersededError& error) {
  const std::lock_guard lock(mutex_);
  superseded_ = error.what();
}

void SnapshotKeeper::write(const Save& save) {
  std::string failure;
  bool disk_was_full = false;
  const double cpu_before = thread_cpu_seconds();
  try {
    check_copied_state(*save.copy);
    if (save.shard)
      write_shard(save);
    else
      write_file(save);
  } catch (const SupersededError& error) {
    return stop_saving(error);
  } catch (const std::exception& error) {
    const std::string text = error.what();  // torch appends a stack trace
    failure = text.substr(0, text.find('\n'));
    disk_was_full = dynamic_cast<const NoSpaceError*>(&error) != nullptr;
  }
  if (!save.shard) ended(save, failure);
  const std::lock_guard lock(mutex_);
  if (computes_on_cpu_) cpu_of_last_ = thread_cpu_seconds() - cpu_before;
  if (!save.shard) return;
  // Nothing is said yet: whether there is a snapshot is decided when all ranks have written theirs.
  progress_ = failure.empty() ? ShardProgress::kWritten : ShardProgress::kFailed;
  shard_failure_ = failure;
  disk_was_full_ = disk_was_full;
  uncommitted_ = save;
}

void SnapshotKeeper::check_copied_state(const StateBuffer& copy) {
  if (!copy.finish_copy()) throw RunError("the GPU waits for a rank that has exited");
  const std::string bad = first_non_finite(copy.tensors());
  {
    const std::lock_guard lock(mutex_);
    non_finite_ = bad;
  }
  if (!bad.empty()) throw RunError(fmt::format("tensor {} holds NaN or Inf", bad));
}

void SnapshotKeeper::fail_if_disk_is_full(const Save& save) const {
  if (!monitor_.faults().plans(FaultKind::kDiskFull, save.meta.step)) return;
  throw NoSpaceError(
      fmt::format("cannot write {}: No space left on device (injected)", folder_.path()));
}

void SnapshotKeeper::write_file(const Save& save) {
  const auto at = [&](PublishPhase phase) {
    if (phase == PublishPhase::kWriting) fail_if_disk_is_full(save);
    monitor_.faults().at(kPhases[static_cast<std::size_t>(phase)], save.meta.step);
  };
  log_.flush_file();  // what a snapshot has passed is not made again: nor is its line
  flush_records_();
  folder_.publish(save.meta, save.copy->tensors(), at);
  if (remote_ != nullptr) remote_->publish();
  if (monitor_.faults().plans(FaultKind::kCorrupt, save.meta.step)) flip_last_bit(folder_.path());
}

void SnapshotKeeper::ended(const Save& save, const std::string& failure) {
  if (failure.empty()) {
    published_();
    say_saved(save.meta, save.reason, save.begin);
  } else {
    log_.warning(fmt::format(
        "cannot save the snapshot of step {}: {}; training continues, {}", save.meta.step, failure,
        folder_.entries().empty() ? "but there is no snapshot yet" : "the last good one is kept"));
  }
  const std::lock_guard lock(mutex_);
  busy_seconds_ = seconds_from(save.begin);
  if (failure.empty()) saved_step_ = save.meta.step;
  ++(failure.empty() ? counts_.saved : counts_.failed);
}

void SnapshotKeeper::count_capture(double seconds) {
  const std::lock_guard lock(mutex_);
  stall_of_next_ = seconds;
  counts_.stall_seconds += seconds;
  counts_.longest_stall = std::max(counts_.longest_stall, seconds);
}

void SnapshotKeeper::count_stall(double seconds) {
  const std::lock_guard lock(mutex_);
  stall_of_last_ += seconds;
  counts_.stall_seconds += seconds;
  counts_.longest_stall = std::max(counts_.longest_stall, stall_of_last_);
}

void SnapshotKeeper::before_update() {
  const auto begin = Clock::now();
  const bool copies = !disk_job_.copied() || !memory_job_.copied();
  wait_copied(disk_job_);
  wait_copied(memory_job_);
  if (buffer_ && buffer_->copied()) buffer_->copied()->make_stream_wait();
  if (ram_ && ram_->copied()) ram_->copied()->make_stream_wait();
  if (copies) count_stall(seconds_from(begin));
  const std::lock_guard lock(mutex_);
  if (!superseded_.empty()) throw SupersededError(superseded_);
  if (!non_finite_.empty()) {
    throw FinalError(fmt::format(
        "the training state is corrupt: tensor {} contains NaN or Inf; it was not saved, the last "
        "good snapshot is {}; lower optimizer_config.learning_rate, or set "
        "trainer_config.grad_norm_clip",
        non_finite_, folder_.path()));
  }
}

void SnapshotKeeper::wait() {
  constexpr double kBetweenBeats = 0.5;  // s
  constexpr double kPromise = 60.0;
  while (!disk_job_.wait_done_for(kBetweenBeats)) monitor_.enter_for(Phase::kWriting, kPromise);
}

// The first copy reserves memory and page-locks it, which takes seconds for many GB.
void SnapshotKeeper::wait_copied(BackgroundJob& job) {
  constexpr double kPromise = 300.0;
  if (!job.copied()) monitor_.enter_for(Phase::kStaging, kPromise);
  job.wait_copied();
}

void SnapshotKeeper::finish_writing() {
  disk_job_.wait_done();
  memory_job_.wait_done();
  commit_if_complete();
}

void SnapshotKeeper::finish(const TrainingState& state) {
  const auto started = [&] {
    const std::lock_guard lock(mutex_);
    return last_saved_step_started_ == state.meta.step;
  };
  for (int attempt = 0; attempt < 2 && !has_saved(state.meta.step); ++attempt) {
    if (attempt > 0 || !started()) save(state, SaveReason::kFixed);
    wait();
    before_update();
  }
  if (has_saved(state.meta.step)) return;
  throw RunError(unsaved_text(state.meta.step));
}

std::string SnapshotKeeper::unsaved_text(int64_t step) const {
  std::error_code unknown;
  return fmt::format(
      "cannot save the final state (step {}) to {}, which {}; free space or choose "
      "another trainer_config.snapshot_path, and rerun",
      step, folder_.path(),
      folder_.entries().empty() ? "holds no snapshot yet"
      : !std::filesystem::exists(folder_.path(), unknown)
          ? "is gone, as other files of its folder may be"
          : "still holds the last good one");
}

void SnapshotKeeper::finish_sending(std::chrono::milliseconds limit) {
  if (remote_ == nullptr) return;
  constexpr double kPromise = 60.0;
  const int known = StopSignal::pending();
  remote_->finish(limit, [this, known] {
    monitor_.enter_for(Phase::kWriting, kPromise);
    return StopSignal::pending() == known;
  });
}

void SnapshotKeeper::forget_memory() {
  memory_job_.wait_done();
  ram_.reset();
  remove_ram_snapshots(shared_memory_folder(), folder_.path());
}

SaveCounts SnapshotKeeper::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace ddp::train
