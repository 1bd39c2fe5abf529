// Jobs on fake GPUs (tests/support/fake_cuda), and what their ledgers counted.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/job.h"

namespace ddp::test {

/// Whether there are fake GPUs; if not, logs that, and the test returns.
bool gpus_are_faked();

/// `options` on a machine with `devices` GPUs, which ddp-run counts itself if there are as many
/// ranks. The ledgers go to ledger.json in the place.
ChildOptions on_gpus(const Workspace& place, int devices, ChildOptions options);

/// A program that waits for a GPU once, in main().
std::string sync_probe();

/// The ledger of a run of so many steps on one GPU, in a place of its own, that saves and logs none
/// in between.
nlohmann::json ledger_of_run(int steps, const Words& overrides);

/// Ledgers of the processes that have ended, one of each rank, in the order of the ranks.
std::vector<nlohmann::json> ledgers_of(const Workspace& place);

}  // namespace ddp::test
