// A snapshot's metadata: position, counters, settings.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/task_kind.h"
#include "trainer/data/distributed_sampler.h"
#include "trainer/optim/amp.h"
#include "trainer/tensorfile/safetensors.h"

namespace ddp::train {

/// Newest readable format of single-file snapshots and of shard indices.
inline constexpr int kSnapshotVersion = 2;
inline constexpr int kShardedVersion = 4;
inline constexpr const char* kVersionKey = "format_version";
/// Metadata key of the task's name.
inline constexpr const char* kTaskKey = "task";

struct EvalRecord {
  int64_t step = 0;
  double loss = 0.0;
  double score = 0.0;  ///< Lower is better, NaN never.
  std::string basis;   ///< score_basis(): only scores of one basis are comparable.
  bool operator==(const EvalRecord&) const = default;
};

/// Whether `record` becomes the best one. A NaN score never does, and yields to any other.
bool is_better(const EvalRecord& record, const std::optional<EvalRecord>& best);

/// The part of a snapshot that is not tensors.
struct SnapshotMeta {
  std::string run_id;         ///< The run that saved.
  int64_t step = 0;           ///< Finished optimizer steps, skipped ones included.
  DataCursor cursor;          ///< Finished epochs, samples consumed in the current one.
  double optimizer_step = 0;  ///< Updates that took effect.
  GradScaler::State grad_scaler;
  std::map<std::string, std::string> task;  ///< Task::metadata() and the name of the task.
  std::string config_json;                  ///< config_to_json() of the run.
  std::string data_sha256;                  ///< Fingerprint of the training samples.
  int64_t micro_batches_per_step = 1;       ///< Over all ranks.
  int64_t world_size = 1;
  std::string step_guard;  ///< StepGuard::state().
  std::optional<EvalRecord> last_eval;
  std::optional<EvalRecord> best_eval;
  std::string early_stopping;   ///< EarlyStopping::state().
  bool evaluation_due = false;  ///< This step's evaluation is still due.

  Metadata to_metadata() const;
  /// `where` is the file's name, for messages. Throws UserError if a newer trainer wrote it,
  /// RunError if a value is missing or damaged. `before_refusal` runs before a newer version is
  /// refused: a flipped bit in the number is damage, not a newer version.
  static SnapshotMeta from_metadata(
      const Metadata& metadata, const std::string& where,
      const std::function<void()>& before_refusal = [] {});
  /// Returns one JSON text, for broadcast to the other ranks.
  std::string to_json() const;
  static SnapshotMeta from_json(const std::string& text);
};

/// Returns the name of the trained task.
std::string snapshot_task(const SnapshotMeta& meta);

/// Throws UserError if the snapshot `path`, of the task `trained`, is not of `task`. `fix`: the
/// message's advice.
void check_snapshot_task(std::string_view trained, TaskKind task, const std::string& path,
                         const std::string& fix);

}  // namespace ddp::train
