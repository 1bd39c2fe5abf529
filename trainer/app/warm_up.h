// What a warm spare does before it is needed.
#pragma once

#include <cstddef>

#include "trainer/app/arguments/trainer_args.h"

namespace ddp::train {

/// Memory that a spare keeps for the model of its run.
inline constexpr std::size_t kMostKept = std::size_t{256} << 20U;

/// Reads the configuration and the data, and makes one step of a small model on the CPU, so that
/// libraries, threads and kernels are there and files are in the page cache; then it makes room for
/// the run's own model, at most kMostKept. Where the run may use a GPU there is neither, and no GPU
/// is touched. Leaves no trace but that; what goes wrong is left for the worker to say.
void warm_up(const TrainerArgs& args) noexcept;

}  // namespace ddp::train
