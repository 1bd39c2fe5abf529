// A process that a launcher starts before it is needed: the contract of DDP_SPARE_FD in
// launcher/worker_contract.h.
#pragma once

namespace ddp::train {

/// Whether this process is a warm spare, without a rank yet.
bool is_warm_spare();

/// Reports that this process is warm and waits until it is needed; then it has a worker's
/// environment and standard streams, and counts as started then. Returns false if it is not needed.
bool become_worker();

}  // namespace ddp::train
