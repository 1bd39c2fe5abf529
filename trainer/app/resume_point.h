// What the ranks of a run agree on about the folder of its snapshots, before and after a task is
// open.
#pragma once

#include <optional>

#include "trainer/config/trainer_config.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/environment/dist_env.h"
#include "trainer/runtime/log/log.h"
#include "trainer/snapshot/snapshot_folder.h"

namespace ddp::train {

struct ResumePoint {
  std::optional<OpenedSnapshot> snapshot;  ///< Rank 0's; others may have opened the same file.
  std::optional<SnapshotMeta> meta;        ///< The same on every rank.
};

/// Rank 0 decides; the others need no access to the file. Throws UserError if another node has a
/// snapshot and rank 0's has none.
ResumePoint find_resume_point(SnapshotFolder& folder, bool several_nodes, ProcessGroup& group,
                              Log& log);

/// Whether every rank saves its part of the state, which all ranks have to write to one folder.
/// Throws UserError if they cannot, and have to.
bool saves_shards(const TrainerConfig& config, bool divided, const SnapshotFolder& folder,
                  ProcessGroup& group, Log& log);

/// Turns copies in memory off: the memory of one machine has the parts of its own ranks, of which
/// no restart makes a snapshot.
void leave_out_copies(TrainerConfig& config, const DistEnv& env, Log& log);

/// Gives all ranks rank 0's run and attempt.
void follow_rank_zero(SnapshotFolder& folder, ProcessGroup& group);

}  // namespace ddp::train
