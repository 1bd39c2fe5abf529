#include "trainer/parallel/dist_env.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>

#include "launcher/worker_contract.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

const char* get(const char* name) { return std::getenv(name); }

int parse_int(const char* name, int low, int high) {
  const char* text = get(name);
  if (text == nullptr) {
    throw UserError(std::string(name) +
                    " is not set, though other variables of a launcher are; start with ddp-run " +
                    "or torchrun, or unset RANK and WORLD_SIZE");
  }
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc{} || stop != end || value < low || value > high) {
    throw UserError("environment variable " + std::string(name) + "='" + text +
                    "': expected an integer from " + std::to_string(low) + " to " +
                    std::to_string(high));
  }
  return value;
}

int parse_int_or(const char* name, int low, int high, int fallback) {
  return get(name) == nullptr ? fallback : parse_int(name, low, high);
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.rfind("127.", 0) == 0;
}

}  // namespace

DistEnv DistEnv::from_environment() {
  using namespace ddp::launch;
  constexpr int kMaxWorld = 1'000'000;
  DistEnv env;
  if (get(kRank) == nullptr && get(kWorldSize) == nullptr) return env;
  env.launched = true;
  env.world_size = parse_int(kWorldSize, 1, kMaxWorld);
  env.rank = parse_int(kRank, 0, env.world_size - 1);
  if (const char* address = get(kMasterAddr)) env.master_addr = address;
  // Without LOCAL_WORLD_SIZE nothing says where the other ranks are, unless they meet on loopback.
  const bool together = get(kLocalWorldSize) != nullptr || is_loopback(env.master_addr);
  env.local_world_size =
      parse_int_or(kLocalWorldSize, 1, env.world_size, together ? env.world_size : 1);
  const int most = get(kLocalWorldSize) != nullptr ? env.local_world_size : env.world_size;
  env.local_rank = parse_int_or(kLocalRank, 0, most - 1, env.rank % env.local_world_size);
  env.master_port = static_cast<uint16_t>(parse_int(kMasterPort, 1, 65535));
  if (const char* count = get(kRestartCount)) env.restart_count = count;
  const char* agent_store = get(kUseAgentStore);
  env.agent_store = agent_store != nullptr && std::string_view(agent_store) == "True";
  return env;
}

}  // namespace ddp::train
