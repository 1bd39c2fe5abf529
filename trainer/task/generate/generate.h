// Autoregressive sampling.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/model/causal_model.h"
#include "trainer/model/sampling_options.h"
#include "trainer/task/generate/decoder.h"

namespace ddp::train {

/// Continues several texts at a time, one token each per step. Keys and values of what has been
/// read are kept; a context longer than the model's block_size is cropped to its end, which moves
/// every position, so that from there on each step reads the whole context again.
class BatchGenerator {
 public:
  struct Row {
    std::vector<int32_t> tokens;  ///< At least one.
    uint64_t seed = 0;            ///< For this row's draws, which do not depend on other rows.
  };

  /// Puts the model, which must outlive it, into eval mode. `options.seed` is not used.
  BatchGenerator(CausalModel& model, std::vector<Row> rows, const SamplingOptions& options);

  /// Draws one more token for each row.
  std::vector<int32_t> next();
  const GraphUse& graph_use() const { return decoder_.graph_use(); }

 private:
  std::vector<int32_t> read_all(int64_t longest);

  CausalModel& model_;
  std::vector<Row> rows_;
  int64_t max_new_tokens_;
  Decoder decoder_;
};

/// One text that grows in turns: what a turn has in common with the text before is not read again.
class TurnGenerator {
 public:
  /// Puts the model, which must outlive it, into eval mode.
  TurnGenerator(CausalModel& model, const SamplingOptions& options);

  /// The text to continue: 1 to block_size tokens.
  void set_text(std::vector<int32_t> tokens);
  /// Draws one more token. Not while is_full().
  int32_t next();
  /// The text has become longer than the model's block_size.
  bool is_full() const;
  const GraphUse& graph_use() const { return decoder_.graph_use(); }

 private:
  CausalModel& model_;
  std::vector<int32_t> tokens_;
  Decoder decoder_;
  bool drawn_ = false;  ///< The last token is the decoder's.
};

/// Continues `prompt` (at least one token) and calls `emit` with each new token as soon as it is
/// drawn. Puts the model into eval mode.
void generate(CausalModel& model, std::vector<int32_t> prompt, const SamplingOptions& options,
              const std::function<void(int64_t)>& emit);

}  // namespace ddp::train
