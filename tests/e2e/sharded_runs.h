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

inline Words under(const std::string& name) { return {"distributed_config.strategy=" + name}; }

}  // namespace ddp::test
