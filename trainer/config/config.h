// Every configuration value of trainer: plain structs, filled by load_config() and constant from
// then on. A new key is a member in its section's header and a row in keys/*_keys.cc, with range,
// unit and meaning; scripts/config_docs.py writes the rest.
#pragma once

#include <string_view>

#include "trainer/config/data_config.h"
#include "trainer/config/model_config.h"
#include "trainer/config/run_config.h"
#include "trainer/config/training_config.h"

namespace ddp::train {

/// What is trained.
enum class TaskKind { kCausalLm, kMaskedLm, kTextClassification, kImageClassification };

constexpr std::string_view task_name(TaskKind task) {
  switch (task) {
    case TaskKind::kCausalLm:
      return "causal_lm";
    case TaskKind::kMaskedLm:
      return "masked_lm";
    case TaskKind::kTextClassification:
      return "text_classification";
    case TaskKind::kImageClassification:
      return "image_classification";
  }
  return "";
}

struct Config {
  TaskKind task = TaskKind::kCausalLm;
  DataConfig data;
  GptConfig gpt;
  BertConfig bert;
  ImageConfig image;
  TrainerConfig trainer;
  OptimizerConfig optimizer;
  DistributedConfig distributed;
  LoggingConfig logging;
  ProfileConfig profile;
  HydraConfig hydra;
};

}  // namespace ddp::train
