#include "launcher/cluster/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <sstream>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/cluster/node_list.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// The first of these variables that is set and not empty.
SchedulerFact first_set(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (auto value = value_of(environment, name); !value.empty()) return {std::move(value), name};
  }
  return {};
}

int number_of(const SchedulerFact& fact) {
  const auto number = whole_number(fact.value);
  if (!number || *number < 0) {
    usage_error(fmt::format("{}={}: must be a whole number", fact.variable, printable(fact.value)));
  }
  return *number;
}

bool is_more_than_one(const SchedulerFact& fact) {
  return !fact.value.empty() && number_of(fact) > 1;
}

// ---- Slurm ------------------------------------------------------------------------------------

SchedulerFact slurm_step(const Environment& environment) {
  return first_set(environment, {"SLURM_STEP_ID", "SLURM_STEPID"});
}

SchedulerFact slurm_nodes(const Environment& environment) {
  return first_set(environment, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
}

SchedulerFact slurm_host(const Environment& environment) {
  SchedulerFact list =
      first_set(environment, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (!list.value.empty()) list.value = expand_node_list(list.variable, list.value).front();
  return list;
}

// Jobs that share a node have near numbers, so these must not meet, nor may a job's steps. The
// range lies below the ports that systems give to clients.
int port_of_job(int job, int step) {
  constexpr int kFirst = 20000, kSteps = 8, kJobs = 1000;
  return kFirst + (job % kJobs) * kSteps + step % kSteps;
}

SchedulerFact slurm_port(const Environment& environment, const SchedulerFact& job) {
  SchedulerFact reserved = first_set(environment, {"SLURM_STEP_RESV_PORTS"});
  if (!reserved.value.empty()) {
    reserved.value = reserved.value.substr(0, reserved.value.find_first_of("-,"));
    return reserved;
  }
  const SchedulerFact step = slurm_step(environment);
  const int number = step.value.empty() ? 0 : number_of(step);
  return {std::to_string(port_of_job(number_of(job), number)), job.variable};
}

// Tells apart steps, and a job from itself before it was requeued.
SchedulerFact slurm_run_id(const Environment& environment, const SchedulerFact& job) {
  SchedulerFact id = job;
  const SchedulerFact step = slurm_step(environment);
  const SchedulerFact restarts = first_set(environment, {"SLURM_RESTART_COUNT"});
  if (!step.value.empty()) id.value += "." + step.value;
  if (!restarts.value.empty() && restarts.value != "0") id.value += "-r" + restarts.value;
  return id;
}

void refuse_several_tasks(const SchedulerFact& tasks, const SchedulerFact& nodes) {
  if (tasks.value.empty() || nodes.value.empty() || number_of(tasks) == number_of(nodes)) return;
  usage_error(
      fmt::format("srun starts {} ddp-runs ({}) on {} nodes ({}), but one per node is needed; "
                  "write srun --ntasks-per-node=1",
                  tasks.value, tasks.variable, nodes.value, nodes.variable));
}

SchedulerFact slurm_components(const Environment& environment) {
  return first_set(environment, {"SLURM_HET_SIZE", "SLURM_PACK_SIZE"});
}

// Each component has a step, node list and node numbers of its own.
void refuse_components(const Environment& environment) {
  const SchedulerFact size = slurm_components(environment);
  if (!is_more_than_one(size)) return;
  usage_error(
      fmt::format("--scheduler=slurm: {}={}: the components of a heterogeneous job do not form one "
                  "job; name their hosts with --hosts, or unset {} to use one component",
                  size.variable, size.value, size.variable));
}

SchedulerFacts slurm_facts(const Environment& environment) {
  const SchedulerFact job = first_set(environment, {"SLURM_JOB_ID", "SLURM_JOBID"});
  if (job.value.empty()) {
    usage_error(
        "--scheduler=slurm: not in a Slurm job (SLURM_JOB_ID is not set); start ddp-run with "
        "srun, or omit the option");
  }
  refuse_components(environment);
  SchedulerFacts facts{.name = "Slurm",
                       .nodes = slurm_nodes(environment),
                       .node_rank = first_set(environment, {"SLURM_NODEID"}),
                       .nproc = first_set(environment, {"SLURM_GPUS_ON_NODE"}),
                       .host = slurm_host(environment),
                       .port = slurm_port(environment, job),
                       .run_id = slurm_run_id(environment, job)};
  if (facts.nproc.value == "0") facts.nproc = {};
  if (slurm_step(environment).value.empty()) {
    if (is_more_than_one(facts.nodes))
      facts.hint = "not started by srun; on several nodes, srun must start one ddp-run per node";
  } else {
    refuse_several_tasks(first_set(environment, {"SLURM_STEP_NUM_TASKS"}), facts.nodes);
  }
  return facts;
}

// "switch.switch.node"; "node": the cluster has no topology.
bool has_topology(const SchedulerFact& pattern) {
  return pattern.value.find('.') != std::string::npos;
}

// ---- MPI --------------------------------------------------------------------------------------

constexpr std::initializer_list<const char*> kMpiSizes{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};

// Process managers put host names and signs into their names of a job.
std::string plain_name(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](unsigned char c) { return !std::isalnum(c) && c != '.' && c != '_' && c != '-'; }, '-');
  return text;
}

SchedulerFacts mpi_facts(const Environment& environment) {
  SchedulerFacts facts{
      .name = "MPI",
      .nodes = first_set(environment, kMpiSizes),
      .node_rank = first_set(environment, {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}),
      .nproc = {},
      .host = first_set(environment, {kMasterAddr}),
      .port = first_set(environment, {kMasterPort}),
      .run_id = first_set(environment, {"PMIX_NAMESPACE"}),
      .host_remedy =
          "mpirun -x MASTER_ADDR=HOST (Open MPI), mpirun -genv MASTER_ADDR HOST (MPICH)"};
  if (facts.nodes.value.empty() || facts.node_rank.value.empty()) {
    usage_error(
        "--scheduler=mpi: not started by mpirun (neither OMPI_COMM_WORLD_SIZE nor PMI_SIZE "
        "is set); start ddp-run with mpirun, or omit the option");
  }
  const auto local = first_set(environment, {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"});
  if (is_more_than_one(local)) {
    usage_error(
        fmt::format("mpirun starts {} ddp-runs on this node ({}), but one per node is needed; "
                    "write mpirun --map-by ppr:1:node (Open MPI) or -ppn 1 (MPICH)",
                    local.value, local.variable));
  }
  if (facts.host.value.empty()) facts.host = slurm_host(environment);
  facts.run_id.value = plain_name(facts.run_id.value);
  return facts;
}

// ---- Flux -------------------------------------------------------------------------------------

SchedulerFacts flux_facts(const Environment& environment) {
  SchedulerFacts facts{.name = "Flux",
                       .nodes = first_set(environment, {"FLUX_JOB_NNODES"}),
                       .node_rank = first_set(environment, {"FLUX_TASK_RANK"}),
                       .nproc = {},
                       .host = first_set(environment, {kMasterAddr}),
                       .port = first_set(environment, {kMasterPort}),
                       .run_id = first_set(environment, {"FLUX_JOB_ID"}),
                       .host_remedy = "MASTER_ADDR=$(flux hostlist --nth=0 local) flux run ..."};
  if (facts.nodes.value.empty() || facts.node_rank.value.empty()) {
    usage_error(
        "--scheduler=flux: not started by flux run (FLUX_TASK_RANK is not set); start ddp-run with "
        "flux run, or omit the option");
  }
  const SchedulerFact tasks = first_set(environment, {"FLUX_JOB_SIZE"});
  if (!tasks.value.empty() && number_of(tasks) != number_of(facts.nodes)) {
    usage_error(
        fmt::format("flux starts {} ddp-runs (FLUX_JOB_SIZE) on {} nodes (FLUX_JOB_NNODES), but "
                    "one per node is needed; write flux run --nodes=N --tasks-per-node=1",
                    tasks.value, facts.nodes.value));
  }
  facts.run_id.value = plain_name(facts.run_id.value);
  return facts;
}

// ---- PBS, LSF, SGE: the job's script runs on the first host of a list ---------------------------

SchedulerFact pbs_hosts(const Environment& environment) {
  const SchedulerFact task = first_set(environment, {"PBS_TASKNUM"});
  if (is_more_than_one(task)) {
    usage_error(
        fmt::format("--scheduler=pbs: started by pbsdsh (PBS_TASKNUM={}); start ddp-run once, in "
                    "the job's script: it starts itself on the other hosts",
                    task.value));
  }
  return first_set(environment, {"PBS_NODEFILE"});
}

// "gpu1 4 gpu2 4" -> gpu1:4,gpu2:4.
SchedulerFact lsf_list(SchedulerFact hosts) {
  std::istringstream words(hosts.value);
  std::string list;
  for (std::string name, slots; words >> name; slots.clear()) {
    words >> slots;
    if (whole_number(slots).value_or(0) < 1) {
      usage_error(fmt::format("{}={}: must be pairs of a host and its slots, such as gpu1 4 gpu2 4",
                              hosts.variable, printable(hosts.value)));
    }
    list += fmt::format("{}{}:{}", list.empty() ? "" : ",", name, slots);
  }
  hosts.value = std::move(list);
  return hosts;
}

SchedulerFact in_job(SchedulerFact hosts, const char* option, const char* variables) {
  if (!hosts.value.empty()) return hosts;
  usage_error(
      fmt::format("--scheduler={}: not in the script of such a job ({} is not set); start ddp-run "
                  "there, or omit the option",
                  option, variables));
}

SchedulerFact in_file(SchedulerFact file) {
  file.value.insert(0, "@");
  return file;
}

}  // namespace

SchedulerFact batch_hosts(Scheduler scheduler, const Environment& environment) {
  switch (scheduler) {
    case Scheduler::kPbs:
      return in_file(in_job(pbs_hosts(environment), "pbs", "PBS_NODEFILE"));
    case Scheduler::kSge:
      return in_file(in_job(first_set(environment, {"PE_HOSTFILE"}), "sge", "PE_HOSTFILE"));
    case Scheduler::kLsf: {
      SchedulerFact hosts = first_set(environment, {"LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE"});
      hosts = in_job(hosts, "lsf", "LSB_MCPU_HOSTS");
      if (hosts.variable == "LSB_DJOB_HOSTFILE") return in_file(hosts);
      return lsf_list(std::move(hosts));
    }
    default:
      return {};
  }
}

std::optional<SchedulerFacts> scheduler_facts(Scheduler scheduler, const Environment& environment) {
  switch (scheduler) {
    case Scheduler::kSlurm:
      return slurm_facts(environment);
    case Scheduler::kMpi:
      return mpi_facts(environment);
    case Scheduler::kFlux:
      return flux_facts(environment);
    case Scheduler::kAuto:
      break;
    default:
      return std::nullopt;
  }
  if (!slurm_step(environment).value.empty()) return slurm_facts(environment);
  if (!first_set(environment, {"FLUX_TASK_RANK"}).value.empty()) return flux_facts(environment);
  if (!first_set(environment, kMpiSizes).value.empty()) return mpi_facts(environment);
  return std::nullopt;
}

std::string slurm_place(const Environment& environment) {
  constexpr std::size_t kLongest = 256;
  if (slurm_step(environment).value.empty()) return "";
  std::string place = first_set(environment, {"SLURM_NODEID"}).value;
  if (has_topology(first_set(environment, {"SLURM_TOPOLOGY_ADDR_PATTERN"})))
    place = first_set(environment, {"SLURM_TOPOLOGY_ADDR"}).value;
  return place.substr(0, kLongest);
}

std::string remedy_for_one_node(const Environment& environment) {
  const auto several = [&](std::initializer_list<const char*> names) {
    return whole_number(first_set(environment, names).value).value_or(1) > 1;
  };
  const bool is_step = !slurm_step(environment).value.empty();
  if (const auto size = slurm_components(environment);
      is_step && whole_number(size.value).value_or(1) > 1) {
    return fmt::format("start ddp-run once, with the hosts of all components ({}={}) in --hosts",
                       size.variable, size.value);
  }
  if (is_step && several({"SLURM_STEP_NUM_NODES"})) return "add --scheduler=slurm";
  if (several({"FLUX_JOB_NNODES"})) return "add --scheduler=flux";
  return several(kMpiSizes) ? "add --scheduler=mpi" : "";
}

}  // namespace ddp::launch
