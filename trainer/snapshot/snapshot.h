// A snapshot: everything the next training step reads, in one safetensors file that is published by
// rename, or in shards, one per rank, that such a file lists (shard_file.h).
//
// Tensors: `model.<parameter>`, `optimizer.<parameter>.exp_avg`,
// `optimizer.<parameter>.exp_avg_sq`, `generator.<device>`. Metadata: see SnapshotMeta;
// trainer/README.md lists all names.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/layout/tensor_layout.h"
#include "trainer/snapshot/saved_tensors.h"
#include "trainer/snapshot/snapshot_meta.h"
#include "trainer/tensorfile/safetensors.h"

namespace ddp::train {

/// An opened, verified snapshot.
struct OpenedSnapshot {
  std::string path;
  std::vector<std::string> shards_in_memory;  ///< Shards of a copy in memory, which has no index.
  std::unique_ptr<SavedTensors> file;
  SnapshotMeta meta;

  /// Copies a stored tensor into `target` (any device). Throws UserError if it is missing or has
  /// another shape or dtype, as with a snapshot of another model.
  void load_into(const std::string& name, const torch::Tensor& target) const;
  /// The same for the part of a stored tensor that `layout` describes; only that part is read.
  /// Padding becomes 0.
  void load_into(const std::string& name, const TensorLayout& layout,
                 const torch::Tensor& target) const;
};

/// Opens exactly `path` and verifies its checksums. Throws RunError (damaged), UserError (missing,
/// newer version).
OpenedSnapshot open_snapshot(const std::string& path);

/// The same, but verifies only the header, which is fast for any size.
OpenedSnapshot peek_snapshot(const std::string& path);

/// Opens shards in memory, which have no index; see SavedTensors. Verifies their headers only.
OpenedSnapshot peek_shards(const std::vector<std::string>& shards);

/// Writes a snapshot in shards as one file. Holds its tensors in memory. Throws RunError.
void write_as_one_file(const OpenedSnapshot& snapshot, const std::string& path);

/// Returns the checksum by which open_if_same() identifies files: over the header, which contains
/// the digests of all tensors.
std::string header_checksum(const OpenedSnapshot& snapshot);

/// Opens a snapshot, a file or shards in memory, if it has this checksum; the tensors are not
/// verified. Returns nullopt if it is another one or unreadable.
std::optional<OpenedSnapshot> open_if_same(const std::vector<std::string>& files,
                                           const std::string& checksum);

/// Returns the name of the tensor that holds a parameter as evaluated: averaged if the run kept an
/// average of its weights.
std::string evaluated_tensor(const SavedTensors& file, const std::string& parameter);

/// SHA-256 over everything the next training step depends on, and nothing else: tensors, position
/// and arithmetic settings, but no times, hosts, paths or run lengths. Equal for equal training
/// states.
///
/// Tensors are hashed by rows, so the result does not depend on how they are divided into shards.
std::string content_sha256(const SavedTensors& file);

/// Returns the id of a new run, 16 hex digits: a hash of the arithmetic settings and the text, so
/// that the same training has the same id anywhere, and of `number`, which distinguishes the runs
/// in one folder.
std::string new_run_id(const std::string& config_json, const std::string& data_sha256, int number);

}  // namespace ddp::train
