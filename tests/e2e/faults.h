// Faults on purpose, and what a run that has recovered from them is compared with.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"

namespace ddp::test {

/// Without delays, however fast the machine: faults come in quick succession.
inline const Words kTwentyRestarts = {"--max_restarts=20", "--healthy-after=0.01"};

inline std::string plan_of(const Words& faults) {
  return "trainer_config.fault_plan=" + nlohmann::json(faults).dump();
}

inline nlohmann::json summary_of(const Workspace& place) {
  return nlohmann::json::parse(read_bytes(place / "run_summary.json"));
}

inline void check_same_end(const Workspace& unbroken, const Workspace& place) {
  CHECK(differences(unbroken.snapshot(), place.snapshot()) == Words{});
  CHECK(content_sha256(unbroken) == content_sha256(place));
}

}  // namespace ddp::test
