#include "trainer/parallel/environment/dist_env.h"

#include <charconv>
#include <system_error>

#include "launcher/worker_contract.h"
#include "trainer/parallel/environment/scheduler_env.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

// The launcher's variables, or the scheduler's in their place.
class LauncherVariables {
 public:
  LauncherVariables() : all_(whole_environment()) {
    all_.merge(launcher_variables(all_));  // what is set stays
  }

  const std::string* find(const char* name) const {
    const auto found = all_.find(name);
    return found == all_.end() ? nullptr : &found->second;
  }
  bool has(const char* name) const { return find(name) != nullptr; }

  int integer(const char* name, int low, int high) const {
    const std::string* text = find(name);
    if (text == nullptr) {
      throw UserError(std::string(name) +
                      " is not set, though other variables of a launcher are; start with ddp-run " +
                      "or torchrun, or unset RANK and WORLD_SIZE");
    }
    int value = 0;
    const char* end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, value);
    if (error != std::errc{} || stop != end || value < low || value > high) {
      throw UserError("environment variable " + std::string(name) + "='" + *text +
                      "': expected an integer from " + std::to_string(low) + " to " +
                      std::to_string(high));
    }
    return value;
  }

  int integer_or(const char* name, int low, int high, int fallback) const {
    return has(name) ? integer(name, low, high) : fallback;
  }

 private:
  Variables all_;
};

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.rfind("127.", 0) == 0;
}

}  // namespace

DistEnv DistEnv::from_environment() {
  using namespace ddp::launch;
  constexpr int kMaxWorld = 1'000'000;
  DistEnv env;
  const LauncherVariables variables;
  if (!variables.has(kRank) && !variables.has(kWorldSize)) return env;
  env.launched = true;
  env.world_size = variables.integer(kWorldSize, 1, kMaxWorld);
  env.rank = variables.integer(kRank, 0, env.world_size - 1);
  if (const auto* address = variables.find(kMasterAddr)) env.master_addr = *address;
  // Without LOCAL_WORLD_SIZE the other ranks' machines are unknown, unless they meet on loopback.
  const bool counted = variables.has(kLocalWorldSize);
  const bool together = counted || is_loopback(env.master_addr);
  env.local_world_size =
      variables.integer_or(kLocalWorldSize, 1, env.world_size, together ? env.world_size : 1);
  const int most = counted ? env.local_world_size : env.world_size;
  env.local_rank = variables.integer_or(kLocalRank, 0, most - 1, env.rank % env.local_world_size);
  env.master_port = static_cast<uint16_t>(variables.integer(kMasterPort, 1, 65535));
  if (const auto* count = variables.find(kRestartCount)) env.restart_count = *count;
  const auto* agent_store = variables.find(kUseAgentStore);
  env.agent_store = agent_store != nullptr && *agent_store == "True";
  return env;
}

}  // namespace ddp::train
