// The training that `trainer estimate` and `trainer plan` compute, with or without its data.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trainer/app/arguments/trainer_args.h"
#include "trainer/config/config.h"
#include "trainer/task/task.h"

namespace ddp::train {

struct CostedTraining {
  Config config;
  std::string note;  ///< Where the vocabulary's size is from if not from the data; else "".
  std::unique_ptr<const Config> of_cost;  ///< What `task` or `without_data` refers to.
  std::unique_ptr<Task> task;             ///< With its data; null: there are none.
  std::unique_ptr<TaskCost> without_data;

  const TaskCost& cost() const { return task ? *task : *without_data; }
};

/// Opens the data, unless args.vocab_size is given or a language model's are not there: then the
/// vocabulary's size is that, the tokenizer's, or the one that the model was published with. Throws
/// UserError: the configuration, or none of them is known.
CostedTraining costed_training(const TrainerArgs& args);

}  // namespace ddp::train
