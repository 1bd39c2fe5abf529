// The training that `trainer estimate` and `trainer plan` compute, with or without its data.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trainer/app/arguments/trainer_args.h"
#include "trainer/config/config.h"
#include "trainer/task/task_cost.h"

namespace ddp::train {

struct CostedTraining {
  Config config;
  std::string note;  ///< Where the vocabulary's size is from if not from the data; else "".
  std::optional<int64_t> samples;         ///< In the data, if they were read.
  std::unique_ptr<const Config> of_cost;  ///< What `cost` refers to.
  std::unique_ptr<const TaskCost> cost;
};

/// Opens the data, unless args.vocab_size is given or a language model's are not there: then the
/// vocabulary's size is that, the tokenizer's, or the one that the model was published with. Throws
/// UserError: the configuration, or none of them is known.
CostedTraining costed_training(const TrainerArgs& args);

}  // namespace ddp::train
