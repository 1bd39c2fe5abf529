#include "launcher/cluster/scheduler.h"

#include "launcher/cluster/node_list.h"
#include "tests/launcher/command_line.h"

namespace ddp::launch {
namespace {

using Catch::Contains;
using Names = std::vector<std::string>;

LaunchConfig taken(std::vector<const char*> args, const Environment& environment) {
  args.push_back("x");
  return parse(std::move(args), environment);
}

std::string problem_with(const std::vector<const char*>& args, const Environment& environment) {
  return problem_of([&] { taken(args, environment); });
}

// What srun of Slurm 22.05 sets for the second of two nodes, as far as it matters.
Environment slurm_step() {
  return {{"SLURM_JOB_ID", "4711"},
          {"SLURM_STEP_ID", "2"},
          {"SLURM_JOB_NODELIST", "gpu[07-10],login"},
          {"SLURM_JOB_NUM_NODES", "5"},
          {"SLURM_NNODES", "2"},
          {"SLURM_STEP_NODELIST", "gpu[08-09]"},
          {"SLURM_STEP_NUM_NODES", "2"},
          {"SLURM_STEP_NUM_TASKS", "2"},
          {"SLURM_NODEID", "1"},
          {"SLURM_GPUS_ON_NODE", "4"}};
}

Environment open_mpi() {
  return {{"OMPI_COMM_WORLD_SIZE", "3"},       {"OMPI_COMM_WORLD_RANK", "2"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
          {"PMIX_NAMESPACE", "prterun-a-9@1"}, {"MASTER_ADDR", "10.0.0.1"}};
}

TEST_CASE("a node list is expanded as Slurm expands it") {
  const auto expand = [](const char* text) { return expand_node_list("LIST", text); };
  CHECK(expand("a") == Names{"a"});
  CHECK(expand("a[1-3,7],b-x") == Names{"a1", "a2", "a3", "a7", "b-x"});
  CHECK(expand("n[08-11]") == Names{"n08", "n09", "n10", "n11"});
  CHECK(expand("n[9-10,007]") == Names{"n9", "n10", "n007"});
  CHECK(expand("r[0-1]n[1-2]-ib") == Names{"r0n1-ib", "r0n2-ib", "r1n1-ib", "r1n2-ib"});
  CHECK(expand("a,b,c.example.org") == Names{"a", "b", "c.example.org"});
  CHECK(expand("10.0.0.[1-2]") == Names{"10.0.0.1", "10.0.0.2"});
  CHECK(expand("").empty());
}

TEST_CASE("a bad node list is named, with its variable and what is wrong") {
  const auto problem = [](const char* text) {
    return problem_of([&] { expand_node_list("LIST", text); });
  };
  CHECK(problem("a[1-2") ==
        "LIST=a[1-2: has a '[' without ']'; expected names like "
        "node[1-3,7],login");
  CHECK_THAT(problem("a]"), Contains("has a ']' without '['"));
  CHECK_THAT(problem("a,,b"), Contains("has an empty name"));
  CHECK_THAT(problem(",a"), Contains("has an empty name"));
  for (const char* text : {"a[]", "a[x]", "a[1-]", "a[-1]", "a[1,]", "a[1-2-3]", "a[+1]"}) {
    CHECK_THAT(problem(text), Contains("brackets that hold no numbers"));
  }
  CHECK_THAT(problem("a[3-1]"), Contains("counts down"));
  CHECK_THAT(problem("a[0-999999999]"), Contains("more than a million"));
  CHECK_THAT(problem("a[0-9999]b[0-9999]"), Contains("more than a million"));
  CHECK_THAT(problem("a[12345678901234567890]"), Contains("no numbers"));
}

TEST_CASE("with --scheduler=slurm a step of srun describes its nodes") {
  const auto config = taken({"--scheduler=slurm"}, slurm_step());
  REQUIRE(config.group.has_value());
  CHECK(config.group->rules.max_nodes == 2);
  CHECK(config.group->node_rank == 1);
  CHECK(config.group->host == "gpu08");
  CHECK(config.group->port == 20000 + 711 * 8 + 2);
  CHECK(config.group->rules.run_id == "4711.2");
  CHECK(config.nproc_per_node == "4");
  CHECK(config.hints.empty());  // the first node says it for all
}

TEST_CASE("the first node says what was taken from where") {
  auto environment = slurm_step();
  environment["SLURM_NODEID"] = "0";
  const auto config = taken({"--scheduler=auto", "--nproc-per-node=2"}, environment);
  CHECK(config.nproc_per_node == "2");
  CHECK(config.hints ==
        Names{"from Slurm: --nnodes=2 (SLURM_STEP_NUM_NODES), --rdzv-id=4711.2 (SLURM_JOB_ID), "
              "--master-addr=gpu08 (SLURM_STEP_NODELIST), --master-port=25690 (SLURM_JOB_ID), "
              "--node-rank=0 (SLURM_NODEID)"});
}

TEST_CASE("given options win over the scheduler's") {
  const auto dynamic =
      taken({"--scheduler=slurm", "--nnodes=1:2", "--rdzv-backend=c10d"}, slurm_step());
  REQUIRE(dynamic.group.has_value());
  CHECK(dynamic.group->rules.min_nodes == 1);
  CHECK(dynamic.group->host == "gpu08");
  CHECK(dynamic.group->port == 25690);
  CHECK(dynamic.group->node_rank == -1);
  auto environment = slurm_step();
  environment["PET_RDZV_ENDPOINT"] = "10.0.0.7:1234";
  environment["PET_RDZV_ID"] = "mine";
  const auto given = taken({"--scheduler=slurm"}, environment);
  CHECK(given.group->host == "10.0.0.7");
  CHECK(given.group->port == 1234);
  CHECK(given.group->rules.run_id == "mine");
  const auto elastic =
      taken({"--scheduler=slurm", "--nnodes=1:2", "--rdzv-backend=c10d", "--master-addr=ib-1"},
            slurm_step());
  CHECK(elastic.group->host == "ib-1");
  CHECK(elastic.group->port == 25690);
  const auto address = taken({"--scheduler=slurm", "--master-addr=ib-1"}, slurm_step());
  CHECK(address.group->host == "ib-1");
  CHECK(address.group->port == 25690);
}

TEST_CASE("a scheduler's job on one node stays a plain job of one node") {
  auto environment = slurm_step();
  environment["SLURM_STEP_NUM_NODES"] = environment["SLURM_STEP_NUM_TASKS"] = "1";
  environment["SLURM_NODEID"] = "0";
  const auto config = taken({"--scheduler=slurm"}, environment);
  CHECK_FALSE(config.group.has_value());
  CHECK(config.rdzv_id == "4711.2");
  CHECK(config.master_port == 0);
}

TEST_CASE("a requeued Slurm job has another run id, reserved ports are used") {
  auto environment = slurm_step();
  environment["SLURM_RESTART_COUNT"] = "3";
  environment["SLURM_STEP_RESV_PORTS"] = "12000-12001";
  const auto config = taken({"--scheduler=slurm"}, environment);
  CHECK(config.group->rules.run_id == "4711.2-r3");
  CHECK(config.group->port == 12000);
}

TEST_CASE("with --scheduler=mpi a process of mpirun is a node") {
  const auto config = taken({"--scheduler=mpi"}, open_mpi());
  REQUIRE(config.group.has_value());
  CHECK(config.group->rules.max_nodes == 3);
  CHECK(config.group->node_rank == 2);
  CHECK(config.group->host == "10.0.0.1");
  CHECK(config.group->port == 29500);
  CHECK(config.group->rules.run_id == "prterun-a-9-1");
  const Environment mpich{{"PMI_RANK", "0"},
                          {"PMI_SIZE", "2"},
                          {"MPI_LOCALNRANKS", "1"},
                          {"MASTER_ADDR", "a"},
                          {"MASTER_PORT", "77"}};
  CHECK(taken({"--scheduler=auto"}, mpich).group->port == 77);
  CHECK(taken({"--scheduler=auto"}, mpich).group->node_rank == 0);
}

TEST_CASE("mpirun inside a Slurm job finds the first host in Slurm's list") {
  auto environment = open_mpi();
  environment.erase("MASTER_ADDR");
  environment["SLURM_JOB_ID"] = "1";
  environment["SLURM_JOB_NODELIST"] = "n[3-5]";
  CHECK(taken({"--scheduler=auto"}, environment).group->host == "n3");
}

// As flux-core's job shell sets them for the second of two tasks.
Environment flux_task() {
  return {{"FLUX_JOB_NNODES", "2"},  {"FLUX_JOB_SIZE", "2"}, {"FLUX_TASK_RANK", "1"},
          {"FLUX_JOB_ID", "f2xQ9k"}, {"PMI_RANK", "1"},      {"PMI_SIZE", "2"},
          {"MASTER_ADDR", "gpu1"}};
}

TEST_CASE("with --scheduler=flux a task of flux run is a node") {
  for (const char* option : {"--scheduler=flux", "--scheduler=auto"}) {
    const auto config = taken({option}, flux_task());
    REQUIRE(config.group.has_value());
    CHECK(config.group->rules.max_nodes == 2);
    CHECK(config.group->node_rank == 1);
    CHECK(config.group->host == "gpu1");
    CHECK(config.group->rules.run_id == "f2xQ9k");
  }
  auto several = flux_task();
  several["FLUX_JOB_SIZE"] = "8";
  CHECK_THAT(problem_with({"--scheduler=flux"}, several), Contains("--tasks-per-node=1"));
  CHECK_THAT(problem_with({"--scheduler=flux"}, {}), Contains("not started by flux run"));
  auto nowhere = flux_task();
  nowhere.erase("MASTER_ADDR");
  CHECK(problem_with({"--scheduler=flux"}, nowhere) ==
        "Flux does not say which host is the first: give it with --rdzv-endpoint=HOST, or with "
        "MASTER_ADDR=$(flux hostlist --nth=0 local) flux run ...");
  CHECK_THAT(taken({}, flux_task()).hints.at(0), Contains("--scheduler=flux"));
}

TEST_CASE("the script of a PBS, LSF or SGE job starts ddp-run on the job's hosts") {
  const auto pbs = taken({"--scheduler=pbs"}, {{"PBS_NODEFILE", "/var/spool/pbs/aux/7"}});
  REQUIRE(pbs.hosts.has_value());
  CHECK(pbs.hosts->file == "/var/spool/pbs/aux/7");
  CHECK(pbs.hosts->starts_on_first);
  CHECK(pbs.hosts->slots_count);
  CHECK(pbs.hosts->options == Names{"--scheduler=none"});
  CHECK(pbs.hints == Names{"from the job: --hosts=@/var/spool/pbs/aux/7 (PBS_NODEFILE)"});
  const auto sge = taken({"--scheduler=sge", "--nproc-per-node=2"}, {{"PE_HOSTFILE", "/pe"}});
  CHECK(sge.hosts->file == "/pe");
  CHECK_FALSE(sge.hosts->slots_count);
  const auto lsf = taken({"--scheduler=lsf"}, {{"LSB_MCPU_HOSTS", "gpu1 4 gpu2 4 "}});
  CHECK(lsf.hosts->hosts == "gpu1:4,gpu2:4");
  CHECK(taken({"--scheduler=lsf"}, {{"LSB_DJOB_HOSTFILE", "/lsf"}}).hosts->file == "/lsf");
}

TEST_CASE("a batch system whose job this is not is refused in one line") {
  CHECK_THAT(problem_with({"--scheduler=pbs"}, {}), Contains("PBS_NODEFILE is not set"));
  CHECK_THAT(problem_with({"--scheduler=lsf"}, {}), Contains("LSB_MCPU_HOSTS is not set"));
  CHECK_THAT(problem_with({"--scheduler=sge"}, {}), Contains("PE_HOSTFILE is not set"));
  for (const char* bad : {"gpu1", "gpu1 4 gpu2", "gpu1 x", "gpu1 0"}) {
    CHECK_THAT(problem_with({"--scheduler=lsf"}, {{"LSB_MCPU_HOSTS", bad}}),
               Contains("must be pairs of a host and its slots"));
  }
  const Environment task{{"PBS_NODEFILE", "/f"}, {"PBS_TASKNUM", "2"}};
  CHECK_THAT(problem_with({"--scheduler=pbs"}, task),
             Contains("started by pbsdsh (PBS_TASKNUM=2)"));
  const Environment script{{"PBS_NODEFILE", "/f"}, {"PBS_TASKNUM", "1"}};
  CHECK(problem_with({"--scheduler=pbs"}, script) == "(accepted)");
  CHECK_THAT(problem_with({"--scheduler=pbs", "--hosts=a"}, script),
             Contains("cannot be combined"));
  CHECK(problem_with({"--scheduler=pbs", "--stdin-rank=1"}, script) ==
        "--stdin-rank and --scheduler=pbs cannot be combined: hosts have no terminal; drop one");
}

TEST_CASE("a heterogeneous Slurm job is refused in one line") {
  auto environment = slurm_step();
  environment["SLURM_HET_SIZE"] = "2";
  CHECK(problem_with({"--scheduler=slurm"}, environment) ==
        "--scheduler=slurm: SLURM_HET_SIZE=2: the components of a heterogeneous job do not form "
        "one job; name their hosts with --hosts, or unset SLURM_HET_SIZE to use one component");
  CHECK(problem_with({}, environment) == "(accepted)");
  environment["SLURM_STEP_NUM_NODES"] = environment["SLURM_STEP_NUM_TASKS"] = "1";
  CHECK(taken({}, environment).hints ==
        Names{"started on several nodes, but this job uses only its own; for one job on all of "
              "them start ddp-run once, with the hosts of all components (SLURM_HET_SIZE=2) in "
              "--hosts (or --nnodes=1 to silence this)"});
  CHECK(taken({"--hosts=a,b"}, environment).hints.empty());
}

TEST_CASE("what a scheduler cannot mean is refused in one line with the fix") {
  CHECK_THAT(problem_with({"--scheduler=slurm"}, {}),
             Contains("not in a Slurm job") && Contains("SLURM_JOB_ID"));
  CHECK_THAT(problem_with({"--scheduler=mpi"}, {}), Contains("not started by mpirun"));
  CHECK_THAT(problem_with({"--scheduler=condor"}, {}), Contains("must be one of none, auto"));
  CHECK_THAT(problem_with({"--scheduler=slurm", "--standalone"}, slurm_step()),
             Contains("drop one"));
  auto several = slurm_step();
  several["SLURM_STEP_NUM_TASKS"] = "8";
  CHECK(problem_with({"--scheduler=slurm"}, several) ==
        "srun starts 8 ddp-runs (SLURM_STEP_NUM_TASKS) on 2 nodes (SLURM_STEP_NUM_NODES), but one "
        "per node is needed; write srun --ntasks-per-node=1");
  auto local = open_mpi();
  local["OMPI_COMM_WORLD_LOCAL_SIZE"] = "3";
  CHECK_THAT(problem_with({"--scheduler=mpi"}, local), Contains("--map-by ppr:1:node"));
  auto nowhere = open_mpi();
  nowhere.erase("MASTER_ADDR");
  CHECK_THAT(problem_with({"--scheduler=mpi"}, nowhere),
             Contains("which host is the first") && Contains("-x MASTER_ADDR=HOST"));
  auto bad_rank = slurm_step();
  bad_rank["SLURM_NODEID"] = "7";
  CHECK_THAT(problem_with({"--scheduler=slurm"}, bad_rank), Contains("(set by SLURM_NODEID)"));
  auto bad_list = slurm_step();
  bad_list["SLURM_STEP_NODELIST"] = "gpu[";
  CHECK_THAT(problem_with({"--scheduler=slurm"}, bad_list), Contains("SLURM_STEP_NODELIST=gpu["));
}

TEST_CASE("without --scheduler nothing is taken, but a step of several nodes is told of it") {
  const auto config = taken({}, slurm_step());
  CHECK_FALSE(config.group.has_value());
  CHECK(config.nproc_per_node == "1");
  REQUIRE(config.hints.size() == 1);
  CHECK_THAT(config.hints[0], Contains("--scheduler=slurm"));
  CHECK(taken({"--nnodes=1"}, slurm_step()).hints.empty());
  CHECK(taken({"--standalone"}, slurm_step()).hints.empty());
  CHECK_THAT(taken({}, open_mpi()).hints.at(0), Contains("--scheduler=mpi"));
  // A shell inside an allocation is not a step.
  const Environment shell{{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NUM_NODES", "4"}};
  CHECK(taken({}, shell).hints.empty());
  CHECK(taken({"--scheduler=auto"}, shell).hints.empty());
}

TEST_CASE("the script of a Slurm job is told to use srun") {
  const Environment script{{"SLURM_JOB_ID", "1"},
                           {"SLURM_JOB_NUM_NODES", "4"},
                           {"SLURM_JOB_NODELIST", "n[1-4]"},
                           {"SLURM_NODEID", "0"}};
  const auto config = taken({"--scheduler=slurm"}, script);
  REQUIRE_FALSE(config.hints.empty());
  CHECK_THAT(config.hints[0], Contains("not started by srun"));
}

}  // namespace
}  // namespace ddp::launch
