// A snapshot: everything the next training step reads, in one safetensors file that is published by
// rename, or in shards, each written by a rank, that such a file names (shard_file.h).
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
  /// The same of the part of a stored tensor that `layout` describes; only that part is read.
  /// Padding becomes 0.
  void load_into(const std::string& name, const TensorLayout& layout,
                 const torch::Tensor& target) const;
};

/// Opens exactly `path` and verifies its checksums. Throws RunError (damaged), UserError (missing,
/// newer version).
OpenedSnapshot open_snapshot(const std::string& path);

/// The same, but verifies the header only, as is quick with any size.
OpenedSnapshot peek_snapshot(const std::string& path);

/// Shards in memory that no index names; see SavedTensors. Verifies their headers only.
OpenedSnapshot peek_shards(const std::vector<std::string>& shards);

/// Writes a snapshot in shards as one file. Holds its tensors in memory. Throws RunError.
void write_as_one_file(const OpenedSnapshot& snapshot, const std::string& path);

/// What open_if_same() tells files apart by: a checksum over the header, in which the digests of
/// all tensors are.
std::string header_checksum(const OpenedSnapshot& snapshot);

/// Opens a snapshot, a file or shards in memory, if it has this checksum; the tensors are not
/// verified. Nothing if it is another one or cannot be read.
std::optional<OpenedSnapshot> open_if_same(const std::vector<std::string>& files,
                                           const std::string& checksum);

/// Name of the tensor that holds a parameter as it was evaluated: averaged where the run kept an
/// average of its weights.
std::string evaluated_tensor(const SavedTensors& file, const std::string& parameter);

/// SHA-256 over everything the next training step depends on, and nothing else: tensors, position
/// and arithmetic settings, but no times, hosts, paths or run lengths. Equal for equal training
/// states.
///
/// Tensors are hashed by rows: where they are cut into shards, and how often, changes nothing.
std::string content_sha256(const SavedTensors& file);

/// The id of a new run, 16 hex digits: a hash of the arithmetic settings and the text, so that the
/// same training has the same id anywhere, and of `number`, which tells apart the runs in one
/// folder.
std::string new_run_id(const std::string& config_json, const std::string& data_sha256, int number);

}  // namespace ddp::train
