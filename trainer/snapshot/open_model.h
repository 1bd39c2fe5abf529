// Opens trained models, wherever they lie.
#pragma once

#include <string>

#include "trainer/task/model_bundle.h"

namespace ddp::train {

/// `path`: a snapshot, here or in an object store, the folder of a run, or that of a model of
/// transformers. Throws UserError, RunError.
ModelBundle open_model(const std::string& path, torch::Device device);

/// Throws UserError if `bundle` is of another task. `fix`: what to do about it.
void check_task(const ModelBundle& bundle, TaskKind task, const std::string& fix);

}  // namespace ddp::train
