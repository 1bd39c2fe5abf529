// Sharded saves: the shard, then, on rank 0, the index.
#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "trainer/runtime/files/descriptor.h"
#include "trainer/snapshot/shard_file.h"
#include "trainer/snapshot/snapshot_keeper.h"

namespace ddp::train {
namespace {

/// The phase of writing or renaming a shard.
Phase phase_of_shard(PublishPhase phase) {
  return phase == PublishPhase::kWriting ? Phase::kWriting : Phase::kRename;
}

}  // namespace

void flip_last_bit(const std::string& path) {
  const Descriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (fd < 0) return;
  const off_t at = ::lseek(fd, 0, SEEK_END) - 1;
  unsigned char byte = 0;
  if (::pread(fd, &byte, 1, at) == 1) {
    byte ^= 1U;
    [[maybe_unused]] const auto written = ::pwrite(fd, &byte, 1, at);
  }
}

void SnapshotKeeper::write_shard(const Save& save) {
  const auto at = [&](PublishPhase phase) {
    if (phase == PublishPhase::kWriting) fail_if_disk_is_full(save);
    if (phase != PublishPhase::kPublished)
      monitor_.faults().at(phase_of_shard(phase), save.meta.step);
  };
  const ShardToSave& shard = *save.shard;
  folder_.write_shard(shard.id, shard.stem, shard.pieces,
                      bytes_of_pieces(shard.pieces, save.copy->tensors()), at);
}

void SnapshotKeeper::write_index(const Save& save) {
  std::string failure;
  const auto at = [&](PublishPhase phase) {
    if (phase == PublishPhase::kBeforeRename) return;
    monitor_.faults().at(phase == PublishPhase::kWriting ? Phase::kCommitting : Phase::kPublished,
                         save.meta.step);
  };
  try {
    log_.flush_file();
    flush_records_();
    const ShardToSave& shard = *save.shard;
    folder_.publish_index(save.meta, shard.id, shard.stem, shard.tensors, at);
    if (remote_ != nullptr) remote_->publish();
    if (monitor_.faults().plans(FaultKind::kCorrupt, save.meta.step))
      flip_last_bit(shard_paths(folder_.path()).back());
  } catch (const SupersededError& error) {
    return stop_saving(error);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  ended(save, failure);
}

// All of them had written theirs when one of them died: what is missing is this rank's index.
void SnapshotKeeper::commit_if_complete() {
  if (!shard_rank_ || shard_rank_->rank != 0) return;
  std::optional<Save> save;
  {
    const std::lock_guard lock(mutex_);
    save = uncommitted_;
  }
  if (!save || !folder_.has_all_shards(save->shard->id, save->shard->stem)) return;
  commit();
  disk_job_.wait_done();
}

ShardProgress SnapshotKeeper::shard_progress() const {
  const std::lock_guard lock(mutex_);
  return progress_;
}

std::string SnapshotKeeper::shard_failure() const {
  const std::lock_guard lock(mutex_);
  return shard_failure_;
}

bool SnapshotKeeper::shard_found_disk_full() const {
  const std::lock_guard lock(mutex_);
  return disk_was_full_;
}

bool SnapshotKeeper::has_saved(int64_t step) const {
  const std::lock_guard lock(mutex_);
  return saved_step_ == step;
}

std::optional<SnapshotKeeper::Save> SnapshotKeeper::take_uncommitted() {
  const std::lock_guard lock(mutex_);
  progress_ = ShardProgress::kNone;
  shard_failure_.clear();
  disk_was_full_ = false;
  return std::exchange(uncommitted_, std::nullopt);
}

void SnapshotKeeper::commit() {
  auto save = take_uncommitted();
  if (!save || save->shard->id.rank != 0) return;
  disk_job_.start({[] {}, [this, save = std::move(*save)] { write_index(save); }});
}

void SnapshotKeeper::give_up(const std::string& why, bool disk_was_full) {
  auto save = take_uncommitted();
  if (!save || save->shard->id.rank != 0) return;
  ended(*save, why);
  folder_.remove_orphans();
  if (disk_was_full) folder_.make_room();
}

}  // namespace ddp::train
