#include "launcher/plan/worker_env.h"
#include "launcher/process/worker_spec.h"

#include "tests/support/catch.h"

namespace ddp::launch {
namespace {

TEST_CASE("a worker's environment is torchrun's, with the job's own values") {
  JobInfo job;
  job.role = "trainer";
  job.run_id = "job7";
  job.local_world_size = 2;
  job.max_restarts = 3;
  job.signals_to_handle = "SIGTERM";
  job.omp_num_threads = 4;
  WorkerGroup group;
  group.rendezvous = {.epoch = 1LL << 36,
                      .job = "89ab",
                      .group_rank = 1,
                      .group_world_size = 2,
                      .world_size = 5,  // nodes may differ in size
                      .first_role_rank = 1,
                      .role_world_size = 3,
                      .master_addr = "10.0.0.1",
                      .master_port = 4242};
  group.restart_count = 1;
  Worker worker;
  worker.local_rank = 1;
  worker.rank = 3;
  worker.error_file = "/e.json";
  const Environment inherited{
      {"RANK", "99"}, {"MASTER_PORT", "1"}, {"HOME", "/root"}, {"WORLD_SIZE", "77"}};
  CHECK(worker_environment(inherited, job, group, worker) ==
        Environment{{"HOME", "/root"},
                    {"RANK", "3"},
                    {"LOCAL_RANK", "1"},
                    {"WORLD_SIZE", "5"},
                    {"LOCAL_WORLD_SIZE", "2"},
                    {"GROUP_RANK", "1"},
                    {"GROUP_WORLD_SIZE", "2"},
                    {"ROLE_NAME", "trainer"},
                    {"ROLE_RANK", "2"},
                    {"ROLE_WORLD_SIZE", "3"},
                    {"MASTER_ADDR", "10.0.0.1"},
                    {"MASTER_PORT", "4242"},
                    {"OMP_NUM_THREADS", "4"},
                    {"TORCHELASTIC_RESTART_COUNT", "1"},
                    {"DDP_ROUND_EPOCH", "68719476736"},
                    {"DDP_ROUND_JOB", "89ab"},
                    {"TORCHELASTIC_MAX_RESTARTS", "3"},
                    {"TORCHELASTIC_RUN_ID", "job7"},
                    {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                    {"TORCHELASTIC_ERROR_FILE", "/e.json"},
                    {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM"},
                    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"}});
}

TEST_CASE("what the user has set for NCCL and OpenMP stays") {
  const Environment inherited{{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"}, {"OMP_NUM_THREADS", "5"}};
  const Environment env = worker_environment(inherited, {}, {}, {});
  CHECK(env.at("TORCH_NCCL_ASYNC_ERROR_HANDLING") == "3");
  CHECK(env.at("OMP_NUM_THREADS") == "5");
}

TEST_CASE("with virtual local ranks each worker sees its own GPU as number 0") {
  JobInfo job;
  job.local_world_size = 2;
  job.virtual_local_rank = true;
  job.gpus = {"GPU-a", "3"};
  Worker worker;
  worker.local_rank = 1;
  worker.rank = 1;
  const Environment env =
      worker_environment({{"CUDA_VISIBLE_DEVICES", "GPU-a,3"}}, job, {}, worker);
  CHECK(env.at("LOCAL_RANK") == "0");
  CHECK(env.at("RANK") == "1");
  CHECK(env.at("CUDA_VISIBLE_DEVICES") == "3");
  CHECK(env.count("HIP_VISIBLE_DEVICES") == 0);
  job.amd = true;
  CHECK(worker_environment({}, job, {}, worker).at("HIP_VISIBLE_DEVICES") == "3");
}

TEST_CASE("local_rank is replaced in arguments as torchrun does it, and nothing else is") {
  const Command command{"/p",
                        {"p", "a${local_rank}b${local_rank}", "$local_rank-$local_ranks", "kill $$",
                         "$${local_rank} $$local_rank", "${rank} $", "${local_rank"}};
  CHECK(worker_command(command, 12).argv ==
        std::vector<std::string>{"p", "a12b12", "12-$local_ranks", "kill $$",
                                 "${local_rank} $local_rank", "${rank} $", "${local_rank"});
}

TEST_CASE("a worker can be written as a line for a shell") {
  WorkerSpec worker;
  worker.environment = {{"A", "1"}, {"B", "3"}, {"C", "it's"}};
  worker.command = {"/bin/p", {"p", "x y", "", "z"}};
  CHECK(shell_line({{"A", "1"}, {"B", "2"}}, worker) == "env B=3 'C=it'\\''s' /bin/p 'x y' '' z\n");
  worker.cpus = {0, 3};
  CHECK(shell_line({{"A", "1"}, {"B", "2"}, {"GONE", ""}}, worker) ==
        "env -u GONE B=3 'C=it'\\''s' taskset --cpu-list 0,3 /bin/p 'x y' '' z\n");
}

TEST_CASE("what only this job's workers may have is never inherited") {
  const Environment around{
      {"DDP_SHM_DIR", "/dev/shm/other"}, {"DDP_LAST_FAILURE", "{}"}, {"DDP_WORKER_PER_GPU", "1"}};
  CHECK(worker_environment(around, {}, {}, {}).count("DDP_WORKER_PER_GPU") == 0);
  const Environment without = worker_environment(around, {}, {}, {});
  CHECK(without.count("DDP_SHM_DIR") + without.count("DDP_LAST_FAILURE") == 0);
  JobInfo job;
  job.shm_dir = "/dev/shm/own";
  job.worker_per_gpu = true;
  WorkerGroup group;
  group.last_failure = "{\"rank\":1}";
  const Environment env = worker_environment(around, job, group, {});
  CHECK(env.at("DDP_SHM_DIR") == "/dev/shm/own");
  CHECK(env.at("DDP_WORKER_PER_GPU") == "1");
  CHECK(env.at("DDP_LAST_FAILURE") == "{\"rank\":1}");
}

}  // namespace
}  // namespace ddp::launch
