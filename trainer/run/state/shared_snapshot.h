// Snapshots that several ranks read, and folders that they write.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/parallel/collectives/process_group.h"
#include "trainer/snapshot/snapshot.h"

namespace ddp::train {

/// Opens on every rank what rank 0 has opened, if the rank can read the same files; nothing where
/// it cannot, or rank 0 has none. Rank 0 keeps its own. A collective.
std::optional<OpenedSnapshot> open_as_rank_zero(std::optional<OpenedSnapshot> own,
                                                ProcessGroup& group);

/// Which of the tensors `names` rank 0 loads from its `snapshot`: all but those that it lacks and
/// that are optional. The same on every rank; a collective.
std::vector<bool> loadable_by_rank_zero(const OpenedSnapshot* snapshot,
                                        const std::vector<std::string>& names,
                                        const std::function<bool(const std::string&)>& is_optional,
                                        ProcessGroup& group);

/// Whether every rank sees the folder of rank 0's `path`: rank 0 puts a file there for a moment. A
/// collective. Returns the first rank that does not, or nothing.
std::optional<int> rank_without_folder(const std::string& path, ProcessGroup& group);

}  // namespace ddp::train
