// Runs under the strategies that divide the training state.
#pragma once

#include <string>

#include "tests/e2e/job.h"

namespace ddp::test {

/// Wide enough that matrices are cut into blocks, some of them unequal.
inline const Words kWideModel = {"gpt_config.n_embd=144", "trainer_config.max_steps=6",
                                 "trainer_config.save_every_steps=3"};

inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

inline Words under(const std::string& name) { return {"distributed_config.strategy=" + name}; }

}  // namespace ddp::test
