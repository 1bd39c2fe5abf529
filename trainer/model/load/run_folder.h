// The snapshots of a run's folder, found by the list next to them (snapshot_manifest.h).
#pragma once

#include <string>

namespace ddp::train {

/// Where a link at `path` leads: a file that is published there would take the link's place.
std::string behind_links(const std::string& path);

/// Whether `path` is a run's folder, with a list of snapshots. Throws UserError if unreadable.
bool is_run_folder(const std::string& path);

/// The snapshot that is meant by a file, links resolved, or by a run's folder: the newest, or the
/// best where the run set load_best_model_at_end; a line on standard error reports which, also if
/// `path` is the newest and another one is the best. Throws UserError if the folder is of several
/// runs. A damaged file is for the caller to find.
std::string chosen_snapshot(const std::string& path);

}  // namespace ddp::train
