#include "trainer/parallel/environment/dist_env.h"

#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include "tests/support/catch.h"

#include "tests/support/loopback.h"
#include "trainer/parallel/environment/network.h"
#include "trainer/parallel/environment/scheduler_env.h"
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
                              "TORCHELASTIC_RESTART_COUNT",
                              "SLURM_JOB_ID",
                              "SLURM_STEP_ID",
                              "SLURM_PROCID",
                              "SLURM_LOCALID",
                              "SLURM_NODEID",
                              "SLURM_STEP_NUM_TASKS",
                              "SLURM_STEP_TASKS_PER_NODE"};

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

namespace {

// The sixth of seven tasks on three nodes.
Variables slurm_task() {
  return {{"SLURM_JOB_ID", "4711"}, {"SLURM_STEP_ID", "1"},
          {"SLURM_PROCID", "5"},    {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},    {"SLURM_STEP_NUM_TASKS", "7"},
          {"SLURM_NTASKS", "99"},   {"SLURM_STEP_TASKS_PER_NODE", "3(x2),1"},
          {"MASTER_ADDR", "n1"}};
}

TEST_CASE("who waits for a listener goes on as soon as there is one") {
  using std::chrono::milliseconds;
  const ddp::test::LoopbackSocket socket = ddp::test::bound_loopback_socket();
  wait_for_listener(static_cast<uint16_t>(socket.port), milliseconds(20));  // in vain
  std::thread opening([&] { ::listen(socket.fd, 1); });
  const auto begin = std::chrono::steady_clock::now();
  constexpr std::chrono::minutes kNever{10};
  wait_for_listener(static_cast<uint16_t>(socket.port), kNever);
  CHECK(std::chrono::steady_clock::now() - begin < kNever);
  opening.join();
  ::close(socket.fd);
}

}  // namespace

TEST_CASE("a task of srun with MASTER_ADDR is a rank") {
  CHECK(launcher_variables(slurm_task()) == Variables{{"RANK", "5"},
                                                      {"WORLD_SIZE", "7"},
                                                      {"LOCAL_RANK", "1"},
                                                      {"LOCAL_WORLD_SIZE", "3"},
                                                      {"MASTER_PORT", "25689"}});
  auto variables = slurm_task();
  variables.erase("SLURM_NTASKS");
  const DistEnv env = with(variables);
  CHECK(env.launched);
  CHECK(env.rank == 5);
  CHECK(env.local_rank == 1);
  CHECK(env.world_size == 7);
  CHECK(env.local_world_size == 3);
  CHECK(env.master_addr == "n1");
  CHECK(env.master_port == 25689);
  variables["MASTER_PORT"] = "1234";
  CHECK(with(variables).master_port == 1234);
}

TEST_CASE("the tasks of each node are counted as srun writes them") {
  const auto local_size = [](const char* list, const char* node) {
    auto variables = slurm_task();
    variables["SLURM_STEP_TASKS_PER_NODE"] = list;
    variables["SLURM_NODEID"] = node;
    return launcher_variables(variables)["LOCAL_WORLD_SIZE"];
  };
  CHECK(local_size("3(x2),1", "0") == "3");
  CHECK(local_size("3(x2),1", "2") == "1");
  CHECK(local_size("2,5,4(x3)", "1") == "5");
  CHECK(local_size("2,5,4(x3)", "4") == "4");
  CHECK(local_size("2,5,4(x3)", "5").empty());
  CHECK(local_size("", "0").empty());
}

TEST_CASE("a process of mpirun with MASTER_ADDR is a rank") {
  CHECK(launcher_variables({{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"MASTER_ADDR", "a"}}) == Variables{{"RANK", "2"},
                                                                {"WORLD_SIZE", "4"},
                                                                {"LOCAL_RANK", "0"},
                                                                {"LOCAL_WORLD_SIZE", "2"},
                                                                {"MASTER_PORT", "29500"}});
  CHECK(launcher_variables({{"PMI_RANK", "1"},
                            {"PMI_SIZE", "2"},
                            {"MPI_LOCALRANKID", "1"},
                            {"MPI_LOCALNRANKS", "2"},
                            {"MASTER_ADDR", "a"}}) == Variables{{"RANK", "1"},
                                                                {"WORLD_SIZE", "2"},
                                                                {"LOCAL_RANK", "1"},
                                                                {"LOCAL_WORLD_SIZE", "2"},
                                                                {"MASTER_PORT", "29500"}});
}

TEST_CASE("tasks without MASTER_ADDR, alone, or under a launcher are not taken for ranks") {
  auto sweep = slurm_task();
  sweep.erase("MASTER_ADDR");
  CHECK(launcher_variables(sweep).empty());
  auto alone = slurm_task();
  alone["SLURM_STEP_NUM_TASKS"] = "1";
  CHECK(launcher_variables(alone).empty());
  auto script = slurm_task();  // the job's script is not a step
  script.erase("SLURM_STEP_ID");
  CHECK(launcher_variables(script).empty());
  auto launched = slurm_task();
  launched["RANK"] = "0";
  CHECK(launcher_variables(launched).empty());
}

}  // namespace ddp::train
