// Opens trained models wherever they are stored.
#pragma once

#include <string>

#include "trainer/task/model_bundle.h"

namespace ddp::train {

/// `path`: a snapshot, local or in an object store, a run's folder, or the folder of a transformers
/// model. `base`: the place of the pretrained model below a snapshot's adapters, if it has moved
/// since training. Throws UserError, RunError.
ModelBundle open_model(const std::string& path, torch::Device device, const std::string& base = "");

/// Throws UserError if `base` is given and the snapshot's configuration has no adapters.
void check_base_is_needed(const Config& config, const std::string& path, const std::string& base);

}  // namespace ddp::train
