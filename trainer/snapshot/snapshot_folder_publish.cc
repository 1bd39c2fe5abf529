// What writes into the folder of a run.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"
#include "trainer/snapshot/snapshot_folder.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

}  // namespace

// The best goes last, the newest never.
bool SnapshotFolder::make_room() {
  auto candidates = superseded(entries_, 1);
  if (candidates.empty() && entries_.size() > 1) candidates.push_back(entries_.size() - 1);
  if (candidates.empty()) return false;
  log_.warning(fmt::format("the disk is full: deleting the snapshot of step {} to make room",
                           entries_[candidates.front()].step));
  remove(candidates.front());
  return true;
}

// This run's manifest, or an empty one.
Manifest SnapshotFolder::present_manifest() const {
  const auto manifest = read_manifest(manifest_path());
  return manifest && manifest->run_id == run_id_ ? *manifest : Manifest{};
}

// Where there is nothing yet there is nothing to protect, and no manifest before the first save.
void SnapshotFolder::claim_attempt() {
  const Manifest present = present_manifest();
  check_round(present.round);
  attempt_ = present.attempt + 1;
  if (!entries_.empty() || file_exists(manifest_path())) write_manifest();
  // A process that was stopped between its check and its rename must not succeed with it.
  revoke_temporaries(path_);
  revoke_temporaries(manifest_path());
  for (const auto& shard : shard_files()) {
    remove_stale_temporaries(shard);
    revoke_temporaries(shard);
  }
  scan();  // an earlier start may have saved since the last look
  step_at_start_ = step_there(run_id());
}

// The step of the current file, if it belongs to this run.
std::optional<int64_t> SnapshotFolder::step_there(const std::string& run_id) const {
  if (!file_exists(path_)) return std::nullopt;
  try {
    const SnapshotMeta present = peek_snapshot(path_).meta;
    if (present.run_id == run_id) return present.step;
  } catch (const RunError&) {  // a damaged one
  }
  return std::nullopt;
}

void SnapshotFolder::check_round(const RoundFence& newest) const {
  if (!round_.is_behind(newest)) return;
  throw SupersededError(fmt::format(
      "a later round of this job continues the run in {} (epoch {}); this process belongs to an "
      "older one (epoch {}): it ends without saving, and nothing is lost",
      path_, newest.epoch, round_.epoch));
}

void SnapshotFolder::check_not_superseded(const std::string& run_id, int64_t step) const {
  const auto present = step_there(run_id);
  const Manifest manifest = present_manifest();
  check_round(manifest.round);
  const int64_t newest = std::max(attempt_, manifest.attempt);
  const bool behind = present > step && present != step_at_start_;
  if (newest == attempt_ && !behind) return;
  throw SupersededError(fmt::format(
      "another process continues this run in {} (start {}, {}); this one (start {}, step {}) was "
      "suspended or started twice: it ends without saving, and nothing is lost",
      path_, newest, present ? fmt::format("step {}", *present) : "nothing saved yet", attempt_,
      step));
}

void SnapshotFolder::publish(const SnapshotMeta& meta, const std::vector<TensorBytes>& tensors,
                             const PublishObserver& at) {
  publish_by(meta, [&](const std::string& kept, const PublishCheck& check) {
    publish_safetensors(path_, kept, meta.to_metadata(), tensors, at, check);
  });
}

void SnapshotFolder::publish_by(
    const SnapshotMeta& meta,
    const std::function<void(const std::string& kept, const PublishCheck&)>& write) {
  const std::string newest = fs::path(path_).filename();
  const bool replaces_one = !entries_.empty() && entries_.front().file == newest;
  const bool is_best = !entries_.empty() && &entries_.front() == best_entry(entries_);
  const bool keep = replaces_one && (limit_ > 1 || is_best) && entries_.front().step != meta.step;
  const std::string kept = keep ? name_for_older(entries_.front().step) : "";
  const auto check_run = [&] { check_not_superseded(meta.run_id, meta.step); };
  check_run();
  const auto check = [&](const SafetensorsFile& written) {
    written.verify_header();
    SnapshotMeta::from_metadata(written.metadata(), path_);
    check_run();  // writing may have taken minutes
  };
  while (true) {
    try {
      write(kept, check);
      break;
    } catch (const NoSpaceError&) {
      if (!make_room()) throw;
    } catch (const std::exception&) {
      check_run();  // which takes the temporary file away
      throw;
    }
  }
  if (keep) {
    const std::string name = fs::path(kept).filename();
    std::erase_if(entries_, [&](const auto& entry) { return entry.file == name; });
    entries_.front().file = name;
  } else if (replaces_one) {
    entries_.erase(entries_.begin());
  }
  entries_.insert(entries_.begin(), entry_of(path_, meta));
  const auto late = superseded(entries_, limit_);
  if (!late.empty()) check_run();  // this process may have been suspended since it published
  for (const auto index : late) remove(index);
  write_manifest();
}

// A snapshot that is whole on the disk counts, whether it is listed or not. Attempts and rounds are
// never taken back.
void SnapshotFolder::write_manifest() const {
  try {
    // Begun before it looks at what is there: a later process writes its own, then revokes this.
    AtomicFile file(manifest_path());
    const Manifest present = present_manifest();
    if (attempt_ > 0 && present.attempt > attempt_) return;  // the list is a later start's
    const int64_t attempt = std::max(attempt_, present.attempt);
    const bool keeps = round_.job.empty() || round_.is_behind(present.round);
    const RoundFence& round = keeps ? present.round : round_;
    const std::string text =
        manifest_text(fs::path(path_).filename(), run_id(), attempt, round, entries_);
    file.write(text.data(), text.size());
    file.commit();
  } catch (const std::exception& error) {
    log_.warning(fmt::format("cannot update the list of snapshots: {}", error.what()));
  }
}

}  // namespace ddp::train
