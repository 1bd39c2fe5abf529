#include "trainer/parallel/dist_env.h"

#include <cstdlib>
#include <map>
#include <string>
#include "tests/support/catch.h"

#include "trainer/parallel/local_address.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

const char* const kNames[] = {"RANK",
                              "LOCAL_RANK",
                              "WORLD_SIZE",
                              "LOCAL_WORLD_SIZE",
                              "MASTER_ADDR",
                              "MASTER_PORT",
                              "TORCHELASTIC_USE_AGENT_STORE",
                              "TORCHELASTIC_RESTART_COUNT"};

DistEnv with(const std::map<std::string, std::string>& variables) {
  for (const char* name : kNames) ::unsetenv(name);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  struct Cleanup {
    ~Cleanup() {
      for (const char* name : kNames) ::unsetenv(name);
    }
  } cleanup;
  return DistEnv::from_environment();
}

std::map<std::string, std::string> good() {
  return {{"RANK", "3"},
          {"LOCAL_RANK", "1"},
          {"WORLD_SIZE", "4"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "node0"},
          {"MASTER_PORT", "29500"}};
}

}  // namespace

TEST_CASE("the address for other nodes is the one on the way to the first") {
  CHECK(local_address_towards("127.0.0.1", 29500) == "127.0.0.1");
  CHECK(local_address_towards("", 29500).empty());
  CHECK(local_address_towards("no-such-host.invalid", 29500).empty());
}

TEST_CASE("without a launcher's variables there is one process") {
  const DistEnv env = with({});
  CHECK_FALSE(env.launched);
  CHECK(env.world_size == 1);
  CHECK(env.is_main());
}

TEST_CASE("a launcher's variables are read") {
  auto variables = good();
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  variables["TORCHELASTIC_RESTART_COUNT"] = "2";
  const DistEnv env = with(variables);
  CHECK(env.launched);
  CHECK(env.rank == 3);
  CHECK(env.local_rank == 1);
  CHECK(env.world_size == 4);
  CHECK(env.local_world_size == 2);
  CHECK_FALSE(env.single_node());
  CHECK(env.master_addr == "node0");
  CHECK(env.master_port == 29500);
  CHECK(env.agent_store);
  CHECK(env.restart_count == "2");
}

TEST_CASE("senseless or missing variables are named") {
  const std::pair<const char*, const char*> cases[] = {{"WORLD_SIZE", "0"},
                                                       {"WORLD_SIZE", "two"},
                                                       {"RANK", "4"},
                                                       {"RANK", "-1"},
                                                       {"LOCAL_RANK", "2"},
                                                       {"MASTER_PORT", "0"},
                                                       {"MASTER_PORT", "65536"},
                                                       {"WORLD_SIZE", ""},
                                                       {"LOCAL_WORLD_SIZE", "5"},
                                                       {"RANK", "1x"}};
  for (const auto& [name, value] : cases) {
    auto variables = good();
    variables[name] = value;
    INFO(name << "=" << value);
    CHECK_THROWS_AS(with(variables), UserError);
    CHECK_THROWS_WITH(with(variables), Catch::Contains(name));
  }
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_PORT"}) {
    auto variables = good();
    variables.erase(name);
    CHECK_THROWS_WITH(with(variables), Catch::Contains(std::string(name) + " is not set"));
  }
}

}  // namespace ddp::train
