#include "tests/gpu/gpu_job.h"

#include <algorithm>
#include <fstream>

namespace ddp::test {
namespace {

constexpr const char* kScript = DDP_FAKE_GPU;
constexpr const char* kLedger = "ledger.json";

}  // namespace

bool gpus_are_faked() {
  if (*kScript != '\0') return true;
  say_skipped("no fake GPUs: they need torch 2.15 with its CUDA libraries");
  return false;
}

ChildOptions on_gpus(const Workspace& place, int devices, ChildOptions options) {
  for (auto& word : options.argv) {
    if (word == "--nproc_per_node=" + std::to_string(devices)) word = "--nproc_per_node=gpu";
  }
  const Words script = {kScript,    "--devices",     std::to_string(devices),
                        "--report", place / kLedger, "--"};
  options.argv.insert(options.argv.begin(), script.begin(), script.end());
  options.set.erase("CUDA_VISIBLE_DEVICES");
  options.unset.emplace_back("CUDA_VISIBLE_DEVICES");
  options.set["DDP_BUILD"] = DDP_BUILD_FOLDER;
  options.set["XDG_CACHE_HOME"] = place / "cache";
  return options;
}

std::string sync_probe() {
#ifdef DDP_SYNC_PROBE
  return DDP_SYNC_PROBE;
#else
  return "";
#endif
}

std::vector<nlohmann::json> ledgers_of(const Workspace& place) {
  std::vector<nlohmann::json> ledgers;
  std::ifstream file(place / kLedger);
  for (std::string line; std::getline(file, line);) ledgers.push_back(nlohmann::json::parse(line));
  std::sort(ledgers.begin(), ledgers.end(),
            [](const auto& a, const auto& b) { return a.at("rank") < b.at("rank"); });
  return ledgers;
}

nlohmann::json ledger_of_run(int steps, const Words& overrides) {
  const Workspace place;
  const Words words = {"trainer_config.max_steps=" + std::to_string(steps),
                       "trainer_config.save_every_steps=null",
                       "trainer_config.log_every_steps=1000"};
  succeed(on_gpus(place, 1, alone(place, joined(words, overrides))));
  return ledgers_of(place).at(0);
}

}  // namespace ddp::test
