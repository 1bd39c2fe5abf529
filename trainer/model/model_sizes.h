// The sizes of the model that the task trains: from a preset, from a pretrained model, or given.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trainer/config/keys/config_checks.h"

namespace ddp::train {

/// A size preset of model_type.
struct ModelPreset {
  std::string_view name;
  int64_t n_layer;
  int64_t n_head;
  int64_t n_embd;
};
const std::vector<ModelPreset>& model_presets();

/// Resolves the sizes from model_type or init_from and checks that they fit. Throws UserError.
void complete_model(Config& config, const Given& given);

}  // namespace ddp::train
