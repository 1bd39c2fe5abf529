// A snapshot: everything the next training step reads, in one safetensors file that is published by
// rename.
//
// Tensors: `model.<parameter>`, `optimizer.<parameter>.exp_avg`,
// `optimizer.<parameter>.exp_avg_sq`, `generator.<device>`. Metadata: see SnapshotMeta;
// trainer/README.md lists all names.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/distributed_sampler.h"
#include "trainer/optim/amp.h"
#include "trainer/runtime/log.h"
#include "trainer/runtime/safetensors.h"

namespace ddp::train {

inline constexpr int kSnapshotVersion = 1;

/// The part of a snapshot that is not tensors.
struct SnapshotMeta {
  int64_t step = 0;           ///< Finished optimizer steps, skipped ones included.
  DataCursor cursor;          ///< Finished epochs, samples consumed in the present one.
  double optimizer_step = 0;  ///< Updates that took effect.
  GradScaler::State grad_scaler;
  std::vector<std::string> vocabulary;  ///< Characters in the order of their indices.
  std::string config_json;              ///< config_to_json() of the run.
  std::string data_sha256;              ///< Of the text used.
  int64_t micro_batches_per_step = 1;   ///< On all ranks together.
  int64_t world_size = 1;

  Metadata to_metadata() const;
  /// Throws UserError when a newer trainer wrote it, RunError when a value is missing or damaged.
  static SnapshotMeta from_file(const SafetensorsFile& file, const std::string& path);
  /// One JSON text, for the other ranks.
  std::string to_json() const;
  static SnapshotMeta from_json(const std::string& text);
};

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// Name under which the snapshot before the newest one is kept.
std::string previous_snapshot_path(const std::string& path);

/// Finds out before training whether a snapshot can be written: creates the folder and a temporary
/// file in it, removes what killed processes left. Throws UserError with the path and the system's
/// reason.
void prepare_snapshot_folder(const std::string& path);

/// Writes tensors (any device) and meta to `path`. With `keep_previous` the one that was there
/// stays as previous_snapshot_path(path); without, it is replaced: after a fallback it is the
/// damaged one, and the good one before it must not be lost. Throws RunError; a good snapshot is
/// then still there.
void save_snapshot(const std::string& path, const SnapshotMeta& meta, const NamedTensors& tensors,
                   bool keep_previous = true);

/// An opened, verified snapshot.
struct OpenedSnapshot {
  std::string path;
  std::unique_ptr<SafetensorsFile> file;
  SnapshotMeta meta;

  /// Copies a stored tensor into `target` (any device). Throws UserError when it is missing or has
  /// another shape or dtype: the snapshot is of another model.
  void load_into(const std::string& name, const torch::Tensor& target) const;
};

/// Opens exactly `path` and verifies its checksum. Throws RunError (damaged), UserError (missing,
/// newer version).
OpenedSnapshot open_snapshot(const std::string& path);

/// The newest good snapshot at `path`: the file itself, or the one before it when that is damaged
/// (said in `log`). Nothing when there is none yet. Throws RunError when there are files but none
/// is good: training from scratch would overwrite them.
std::optional<OpenedSnapshot> find_snapshot(const std::string& path, Log& log);

/// SHA-256 over all that the next training step depends on, and nothing else: tensors, position,
/// and those settings that change the arithmetic. No times, hosts, paths, run lengths. Equal for
/// equal training states.
std::string content_sha256(const SafetensorsFile& file);

}  // namespace ddp::train
