// Runs under the strategies that divide the training state.
#pragma once

#include <string>
#include <utility>

#include "tests/e2e/saved_state.h"

namespace ddp::test {

/// Wide enough that matrices are cut into blocks, some of them unequal.
inline const Words kWideModel = {"gpt_config.n_embd=144", "trainer_config.max_steps=6",
                                 "trainer_config.save_every_steps=3"};

inline Words operator+(Words words, const Words& more) { return joined(std::move(words), more); }

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

inline Words under(const std::string& name) { return {"distributed_config.strategy=" + name}; }

}  // namespace ddp::test
