#include "trainer/app/resume_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "launcher/worker_contract.h"
#include "trainer/run/state/shared_snapshot.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"
#include "trainer/snapshot/ram_snapshots.h"

namespace ddp::train {
namespace {

SnapshotFolder::Copies copies_in_memory(const std::string& path) {
  const char* folder = std::getenv(launch::kShmDir);
  return ram_snapshot_copies(folder != nullptr ? folder : "", path);
}

// Rank 0 may be on another node than before; training from scratch there would lose the run.
void check_other_nodes(bool found, const SnapshotFolder& folder, ProcessGroup& group) {
  const auto seen = group.gather_doubles(file_exists(folder.path()) ? 1.0 : 0.0);
  const auto other = std::find(seen.begin(), seen.end(), 1.0);
  if (found || other == seen.end()) return;
  throw UserError(fmt::format(
      "trainer_config.snapshot_path={}: rank 0's node has no snapshot there, but rank {}'s has "
      "one; "
      "put the path on storage that all nodes share, or copy the file, or delete it to start over",
      folder.path(), other - seen.begin()));
}

}  // namespace

ResumePoint find_resume_point(SnapshotFolder& folder, bool several_nodes, ProcessGroup& group,
                              Log& log) {
  ResumePoint point;
  if (group.is_main()) {
    point.snapshot = folder.find(copies_in_memory(folder.path()));
    // A temporary file next to only an older snapshot indicates an interrupted save: it stays.
    if (!point.snapshot || file_exists(folder.path())) remove_stale_temporaries(folder.path());
    remove_stale_temporaries(folder.manifest_path());
  }
  const std::string json =
      group.broadcast_text(point.snapshot ? point.snapshot->meta.to_json() : "");
  if (!json.empty()) point.meta = SnapshotMeta::from_json(json);
  if (several_nodes) check_other_nodes(!json.empty(), folder, group);
  if (!group.is_main()) return point;
  log.setup(
      point.meta
          ? fmt::format("Resuming training from snapshot {} at epoch {}, step {}",
                        point.snapshot->path, point.meta->cursor.epoch_number(), point.meta->step)
          : fmt::format("Snapshot not found: {}. Training model from scratch", folder.path()));
  return point;
}

bool saves_shards(const TrainerConfig& config, bool divided, const SnapshotFolder& folder,
                  ProcessGroup& group, Log& log) {
  const AutoSwitch wanted = config.snapshot_shards;
  const bool automatic = wanted == AutoSwitch::kAuto;
  if (group.size() == 1 || wanted == AutoSwitch::kFalse || (automatic && !divided)) return false;
  const auto blind = rank_without_folder(folder.path(), group);
  if (!blind) return true;
  const bool needed = !automatic || config.ram_snapshots;
  const std::string why = fmt::format(
      "rank {} does not see the folder of {} on rank 0's node, which sharded snapshots need; put "
      "trainer_config.snapshot_path on storage that all nodes share",
      *blind, folder.path());
  if (needed) throw UserError(fmt::format("trainer_config.snapshot_shards: {}", why));
  log.info(fmt::format("Snapshots: rank 0 gathers the state and writes one file, because {}", why));
  return false;
}

void leave_out_copies(TrainerConfig& config, const DistEnv& env, Log& log) {
  if (!std::exchange(config.ram_snapshots, false) || !env.is_main()) return;
  log.warning(
      "trainer_config.ram_snapshots is off: each rank would copy its part to the memory of its own "
      "machine, and a restart needs all of them in one; use trainer_config.snapshot_every");
}

void follow_rank_zero(SnapshotFolder& folder, ProcessGroup& group) {
  const std::string run_id = group.broadcast_text(group.is_main() ? folder.run_id() : "");
  const std::string attempt =
      group.broadcast_text(group.is_main() ? fmt::to_string(folder.attempt()) : "");
  if (!group.is_main()) folder.follow(run_id, std::stoll(attempt));
}

}  // namespace ddp::train
