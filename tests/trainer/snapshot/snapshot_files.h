// Snapshot files for tests.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <set>
#include <string>

#include "tests/trainer/test_model.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/snapshot/snapshot_folder.h"
#include "trainer/snapshot/state_buffer.h"

namespace ddp::train::test {

// A log whose console lines go nowhere.
inline Log quiet_log() { return Log(false, ""); }

inline SnapshotMeta sample_meta(int64_t step) {
  SnapshotMeta meta;
  meta.step = step;
  meta.cursor = {2, 40};
  meta.optimizer_step = 11;
  meta.grad_scaler = {1024.0F, 7};
  meta.task = {{"vocabulary", R"(["\n","a","\"","\u00e4"])"}};
  meta.config_json = config_to_json(Config());
  meta.data_sha256 = std::string(64, 'a');
  meta.micro_batches_per_step = 4;
  meta.world_size = 2;
  meta.best_eval = EvalRecord{3, 1.25, 1.25, "loss"};
  meta.evaluation_due = true;
  return meta;
}

inline NamedTensors sample_tensors() {
  return {{"model.w", torch::arange(12, torch::kFloat32).view({3, 4})},
          {"optimizer.w.exp_avg", torch::full({3, 4}, 0.5F)},
          {"generator.cpu", torch::arange(5, torch::kUInt8)}};
}

inline void publish(SnapshotFolder& folder, const SnapshotMeta& meta, const NamedTensors& tensors) {
  StateBuffer buffer(tensors);
  buffer.begin_copy(tensors, nullptr);
  folder.publish(meta, buffer.tensors());
}

inline void save_steps(SnapshotFolder& folder, std::initializer_list<int64_t> steps) {
  for (const int64_t step : steps) publish(folder, sample_meta(step), sample_tensors());
}

inline SnapshotMeta evaluated(int64_t step, double loss) {
  auto meta = sample_meta(step);
  meta.last_eval = EvalRecord{step, loss, loss, ""};
  return meta;
}

/// One file, without the others that a folder keeps.
inline void save_snapshot(const std::string& path, const SnapshotMeta& meta,
                          const NamedTensors& tensors) {
  StateBuffer buffer(tensors);
  buffer.begin_copy(tensors, nullptr);
  publish_safetensors(path, "", meta.to_metadata(), buffer.tensors());
}

/// The names of the files in `dir`.
inline std::set<std::string> names_in(const TempDir& dir) {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(dir.path()))
    names.insert(file.path().filename());
  return names;
}

}  // namespace ddp::train::test
