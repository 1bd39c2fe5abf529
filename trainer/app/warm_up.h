// Warms up a spare process before it is needed.
#pragma once

#include <cstddef>

#include "trainer/app/arguments/trainer_args.h"

namespace ddp::train {

/// Maximum memory that a spare reserves for its run's model.
inline constexpr std::size_t kMostKept = std::size_t{256} << 20U;

/// Reads the configuration and the data, and runs one step of a small model on the CPU, so that
/// libraries, threads and kernels are loaded and files are in the page cache; then reserves memory
/// for the run's own model, at most kMostKept. If the run may use a GPU it does neither, and
/// touches no GPU. Has no other effect; errors are left for the worker to report.
void warm_up(const TrainerArgs& args) noexcept;

}  // namespace ddp::train
