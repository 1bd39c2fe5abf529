// Learning from pairs of answers: which one is better.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "trainer/config/config.h"
#include "trainer/task/task.h"

namespace ddp::train {

/// See make_task(). The losses are those of TRL: DPO (Rafailov et al., 2023) with label smoothing,
/// robust DPO (Chowdhury et al., 2024), IPO (Azar et al., 2023), ORPO (Hong et al., 2024).
///
/// The reference is the model that the run starts from. Its log-probabilities are computed once,
/// before the first step, and are buffers() from then on: snapshots hold them, and no second model
/// is needed, with or without adapters.
std::unique_ptr<Task> make_preference(const Config& config,
                                      const std::map<std::string, std::string>* metadata);

}  // namespace ddp::train
