// Every configuration value of trainer: plain structs, filled by load_config() and constant from
// then on. A new key is a member in its section's header and a row in keys/*_keys.cc, with range,
// unit and meaning; scripts/docs/config_docs.py writes the rest.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/config/adapter_config.h"
#include "trainer/config/data_config.h"
#include "trainer/config/distributed_config.h"
#include "trainer/config/model_config.h"
#include "trainer/config/model_sections.h"
#include "trainer/config/optimizer_config.h"
#include "trainer/config/preference_config.h"
#include "trainer/config/run_config.h"
#include "trainer/config/task_kind.h"
#include "trainer/config/trainer_config.h"

namespace ddp::train {

struct Config {
  TaskKind task = TaskKind::kCausalLm;
  std::string model = "gpt";  ///< Architecture of a causal_lm.
  std::string init_from;  ///< As given; task, model and their init_from follow from it on loading.
  DataConfig data;
  GptConfig gpt;
  BertConfig bert;
  ImageConfig image;
  LoraConfig lora;
  PromptConfig prompt_tuning;
  PreferenceConfig preference;
  QuantizeConfig quantize;
  ModelSections models;  ///< Sections of models that bring their own.
  TrainerConfig trainer;
  OptimizerConfig optimizer;
  DistributedConfig distributed;
  LoggingConfig logging;
  MetricsConfig metrics;
  ProfileConfig profile;
  HydraConfig hydra;

  /// Whether a pretrained model is frozen, and what is next to it trained.
  bool adapted() const { return lora.enabled() || prompt_tuning.enabled(); }
  /// Rows of the longest sequence in the model: virtual tokens and data.block_size of the text.
  int64_t positions() const { return data.block_size + prompt_tuning.tokens; }
};

}  // namespace ddp::train
