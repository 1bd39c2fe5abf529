// Peak memory of a rank that saves the state of a divided model.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/trainer/run/cut_ranks.h"
#include "tests/trainer/snapshot/snapshot_files.h"
#include "trainer/health/run_monitor.h"
#include "trainer/parallel/mesh/mesh.h"
#include "trainer/run/state/distributed_state.h"
#include "trainer/snapshot/snapshot_keeper.h"

namespace ddp::train::test {

/// Forgets the process's peak of resident memory.
inline void reset_peak_memory() { std::ofstream("/proc/self/clear_refs") << 5; }

inline int64_t peak_memory_bytes() {
  std::ifstream lines("/proc/self/status");
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("VmHWM:")) return 1024 * std::stoll(line.substr(6));
  return 0;
}

/// The ranks of a tensor group have equal rows of 128 MiB and save them to `folder`. By how much
/// rank 0's memory rises meanwhile, in multiples of the whole state; 0 elsewhere.
inline double times_in_memory_while_saved(Mesh& mesh, const std::string& folder) {
  constexpr int kTensors = 16;
  constexpr int64_t kRows = 1024, kColumns = 2048;
  TensorLayouts layouts;
  std::vector<NamedTensor> held;
  const int64_t rows = kRows / mesh.shape().tensor;
  const int64_t first = rows * mesh.place().tensor;
  for (int i = 0; i < kTensors; ++i) {
    const std::string name = std::to_string(i);
    layouts[name] = TensorLayout::cut({kRows, kColumns}, 0, {{first, first + rows}});
    held.push_back({"model." + name, torch::ones({rows, kColumns})});
  }
  DistributedState distributed(layouts, mesh, nullptr, torch::kCPU);
  reset_peak_memory();
  const int64_t before = peak_memory_bytes();
  TrainingState state{sample_meta(1), {}, {}};
  state.is_copy = true;
  for (auto& each : distributed.gather(held)) state.tensors.emplace_back(each.name, each.tensor);
  if (!mesh.world().is_main()) return 0.0;
  const Config config;
  Log log = quiet_log();
  RunMonitor monitor(config, 0, 1, false);
  SnapshotFolder snapshots(folder + "/cut.pt", 1, log);
  SnapshotKeeper keeper(config.trainer, snapshots, nullptr, monitor, log, {});
  keeper.save(std::exchange(state, {}), SaveReason::kFixed);
  keeper.wait();
  constexpr double kWhole = 4.0 * kTensors * kRows * kColumns;
  return static_cast<double>(peak_memory_bytes() - before) / kWhole;
}

/// The ranks of a tensor group save their parts of rows and columns, and load them. By how much the
/// memory of the rank that needs most rises meanwhile, in multiples of a rank's part.
inline double parts_in_memory(Mesh& mesh, const std::string& folder) {
  constexpr int kTensors = 16;
  constexpr int64_t kSize = 2048;
  const int64_t ranks = mesh.shape().tensor, part = kSize / ranks;
  const IndexRange own{part * mesh.place().tensor, part * (mesh.place().tensor + 1)};
  TensorLayouts layouts;
  std::vector<NamedTensor> held;
  for (int i = 0; i < kTensors; ++i) {
    const std::string name = std::to_string(i);
    const auto& layout = layouts[name] = TensorLayout::cut({kSize, kSize}, i % 2, {own});
    held.push_back({"model." + name, torch::ones(layout.local_shape())});
  }
  DistributedState distributed(layouts, mesh, nullptr, torch::kCPU);
  reset_peak_memory();
  const int64_t before = peak_memory_bytes();
  const std::vector<std::string> files = save_boxes(distributed, mesh.world(), held, folder);
  const OpenedSnapshot snapshot = peek_shards(files);
  distributed.load(&snapshot, held, [](const std::string&) { return false; });
  const double bytes = 4.0 * kTensors * kSize * static_cast<double>(part);
  const auto rises =
      mesh.world().gather_doubles(static_cast<double>(peak_memory_bytes() - before) / bytes);
  return *std::max_element(rises.begin(), rises.end());
}

}  // namespace ddp::train::test
