// A process that a launcher starts before it is needed: the contract of DDP_SPARE_FD in
// launcher/worker_contract.h.
#pragma once

#include <cstddef>

#include "trainer/app/arguments/trainer_args.h"

namespace ddp::train {

/// Whether this process is a warm spare, without a rank yet.
bool is_warm_spare();

/// Maximum memory that a spare reserves for its run's model.
inline constexpr std::size_t kMostKept = std::size_t{256} << 20U;

/// Reads the configuration and the data, and runs one step of a small model on the CPU, so that
/// libraries, threads and kernels are loaded and files are in the page cache; then reserves memory
/// for the run's own model, at most kMostKept. If the run may use a GPU it does neither, and
/// touches no GPU. Has no other effect; errors are left for the worker to report.
void warm_up(const TrainerArgs& args) noexcept;

/// Reports that this process is warm and waits until it is needed; then it has a worker's
/// environment and standard streams, and counts as started then. Returns false if it is not needed.
bool become_worker();

}  // namespace ddp::train
