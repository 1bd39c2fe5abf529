// Generation on the model's device: tokens in, the next token of each row out.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "trainer/model/blocks/key_value_cache.h"
#include "trainer/model/causal_model.h"
#include "trainer/model/sampling_options.h"
#include "trainer/parallel/device/cuda_module.h"

namespace ddp::train {

/// How much of a generation was CUDA graphs.
struct GraphUse {
  int64_t replays = 0;  ///< Steps, of all rows at once, whose launches were replayed as one.
  std::string why_not;  ///< Why one could not be recorded; empty: none failed.

  void add(const GraphUse& other);
};

/// Reads tokens into a cache and draws those that follow. The step from one token to the next
/// leaves all but the drawn tokens, which the host reads, on the device. With `options.cuda_graphs`
/// on a GPU it is recorded as a CUDA graph when it comes a second time with the same room in the
/// cache, and replayed while that lasts; if the recording fails it stays as it is. Single-threaded.
class Decoder {
 public:
  /// One row for each seed. The model must outlive it; `options.seed` is not used.
  Decoder(CausalModel& model, const SamplingOptions& options, const std::vector<uint64_t>& seeds);

  /// Takes an empty cache, in place of the present one.
  void set_cache(KeyValueCache cache);
  /// Empty until set_cache(). To be shortened at most.
  std::optional<KeyValueCache>& cache() { return cache_; }
  /// The tokens of each row's text so far, for a repetition penalty.
  void set_seen(const std::vector<std::vector<int32_t>>& texts);

  /// Reads int64 [B, T] of the host after what is in the cache. Returns the tokens it draws.
  std::vector<int32_t> read(const torch::Tensor& idx_BT);
  /// Reads those that were drawn last.
  std::vector<int32_t> read_drawn();

  const GraphUse& graph_use() const { return use_; }

 private:
  void take_draws();
  void draw_after(const torch::Tensor& idx_BT);
  void step();
  bool record();
  std::vector<int32_t> drawn() const;

  CausalModel& model_;
  SamplingOptions options_;
  torch::Device device_;
  std::vector<std::mt19937_64> generators_;
  std::optional<KeyValueCache> cache_;
  // What a step reads and writes, always in the same places.
  torch::Tensor draws_B_, seen_BV_, drawn_B1_;
  bool graphs_;
  std::unique_ptr<CapturedWork> graph_;
  int64_t recorded_room_ = 0;
  int64_t stepped_room_ = 0;  // of the last step without a graph
  GraphUse use_;
};

}  // namespace ddp::train
