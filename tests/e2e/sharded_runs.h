// Runs whose training state or model is divided between ranks.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/saved_state.h"

namespace ddp::test {

/// Wide enough that matrices are cut into blocks, some of them unequal.
inline const Words kWideModel = {"gpt_config.n_embd=144", "trainer_config.max_steps=6",
                                 "trainer_config.save_every_steps=3"};

inline Words operator+(Words words, const Words& more) { return joined(std::move(words), more); }

/// Averages in 8 bits, in blocks of which some are unequal.
inline const Words kEightBits = kWideModel + Words{"optimizer_config.state_bits=8"};

/// Two runs end with the same snapshot, and have said the same of each step and evaluation.
inline void check_same_run(const Workspace& some, const std::string& said_by_some,
                           const Workspace& other, const std::string& said_by_other) {
  CHECK(differences(some.snapshot(), other.snapshot()) == Words{});
  CHECK(content_sha256(some) == content_sha256(other));
  CHECK(steps_of(said_by_some) == steps_of(said_by_other));
  CHECK(evaluations_of(said_by_some) == evaluations_of(said_by_other));
}

/// A Llama of three blocks, with a head of its own.
struct LlamaWorkspace : Workspace {
  LlamaWorkspace() {
    write("config.yaml", tiny_config(R"(model: llama
llama_config: {n_layer: 3, n_head: 4, n_kv_head: 2, n_embd: 64, tie_weights: false}
data_config: {path: text.txt, block_size: 32, train_split: 0.9}
)",
                                     6, 4));
  }
};

/// Makes it a model of experts.
inline const Words kOfExperts = {"llama_config.family=mixtral", "llama_config.n_expert=4",
                                 "llama_config.intermediate=48",
                                 "llama_config.router_aux_loss_coef=0.1"};

/// All that looks at a training, and must change nothing.
inline const Words kBusy = {"trainer_config.sample_every_steps=2",
                            "logging_config.tensorboard=true",
                            "logging_config.histogram_every_steps=2",
                            "trainer_config.check_replicas_every_steps=2",
                            "trainer_config.spike_factor=50",
                            "trainer_config.eval_every_steps=2",
                            "trainer_config.load_best_model_at_end=true"};

inline Words under(const std::string& name) { return {"distributed_config.strategy=" + name}; }

inline Words stages(int count, const std::string& schedule = "1f1b") {
  Words words = {"distributed_config.pipeline=" + std::to_string(count),
                 "distributed_config.pipeline_schedule=" + schedule};
  if (schedule == "interleaved") words.emplace_back("distributed_config.pipeline_chunks=2");
  return words;
}

/// `ranks` share each layer.
inline Words shared_by(int ranks, bool by_sequence = false) {
  Words words = {"distributed_config.tensor=" + std::to_string(ranks)};
  if (by_sequence) words.emplace_back("distributed_config.sequence_parallel=true");
  return words;
}

struct Divided {
  int ranks = 1;
  Words words;
  std::string says = {};  ///< A part of its output.
};

/// Each of `some` ends with the bits of `other`, and says the same of each step and evaluation.
template <class Place = Workspace>
void check_all_same(const std::vector<Divided>& some, const Divided& other, const Words& options) {
  const Place reference;
  const auto by_other = succeed(launched(reference, other.ranks, options + other.words));
  for (const Divided& way : some) {
    INFO(way.ranks << " ranks, " << nlohmann::json(way.words).dump() << " and "
                   << nlohmann::json(other.words).dump() << " of "
                   << nlohmann::json(options).dump());
    const Place place;
    const auto run = succeed(launched(place, way.ranks, options + way.words));
    CHECK_THAT(run.out, Catch::Contains(way.says));
    check_same_run(place, run.out, reference, by_other.out);
  }
}

template <class Place = Workspace>
void check_same(const Divided& some, const Divided& other, const Words& options) {
  check_all_same<Place>({some}, other, options);
}

}  // namespace ddp::test
