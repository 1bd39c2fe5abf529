// Opens trained models, wherever they lie.
#pragma once

#include <string>

#include "trainer/task/model_bundle.h"

namespace ddp::train {

/// `path`: a snapshot, here or in an object store, the folder of a run, or that of a model of
/// transformers. `base`: where the pretrained model below a snapshot's adapters is, if not where it
/// was trained. Throws UserError, RunError.
ModelBundle open_model(const std::string& path, torch::Device device, const std::string& base = "");

/// Throws UserError if `base` is given and the snapshot's configuration has no adapters.
void check_base_is_needed(const Config& config, const std::string& path, const std::string& base);

/// Throws UserError if `bundle` is of another task. `fix`: what to do about it.
void check_task(const ModelBundle& bundle, TaskKind task, const std::string& fix);

}  // namespace ddp::train
