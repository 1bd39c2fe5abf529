// Facts about the job from the environment of a scheduler's processes. Pure.
#pragma once

#include <optional>
#include <string>

#include "launcher/base/command.h"

namespace ddp::launch {

enum class Scheduler { kNone, kAuto, kSlurm, kMpi, kFlux, kPbs, kLsf, kSge };

/// An option's value and the variable that it comes from; empty: unknown.
struct SchedulerFact {
  std::string value{};
  std::string variable{};
};

struct SchedulerFacts {
  std::string name;         // "Slurm", "MPI", "Flux"
  SchedulerFact nodes;      // one ddp-run runs on each
  SchedulerFact node_rank;  // of this one
  SchedulerFact nproc;      // workers on this node
  SchedulerFact host;       // where the nodes meet: the first node
  SchedulerFact port;
  SchedulerFact run_id;
  std::string hint{};         // about what looks wrong; may be empty
  std::string host_remedy{};  // how to set `host` with the scheduler; may be empty
};

/// Slurm: a step of srun, or an allocation. Mpi: Open MPI (OMPI_COMM_WORLD_*), or MPICH and its
/// relatives (PMI_*); the first host comes from MASTER_ADDR or Slurm's node list, as MPI does not
/// give it. Flux: flux run; the first host comes from MASTER_ADDR. Auto: the first of srun, Flux
/// and MPI that started this process. Returns nullopt if none did, and for batch systems. Throws
/// LaunchError (2) if the requested scheduler is missing, started several ddp-runs on a node, or
/// has a heterogeneous job.
std::optional<SchedulerFacts> scheduler_facts(Scheduler scheduler, const Environment& environment);

/// Returns the hosts of a PBS, LSF or SGE job, as --hosts takes them: the job's script starts
/// ddp-run on the first. Empty for other schedulers. Throws LaunchError (2) outside such a script.
SchedulerFact batch_hosts(Scheduler scheduler, const Environment& environment);

/// Returns a key that sorts the nodes of a step of srun by proximity: the place in the topology if
/// Slurm has one, else the number of the node; "" outside a step.
std::string slurm_place(const Environment& environment);

/// Returns how one job gets all nodes if a scheduler started this process as one of several; "": it
/// did not.
std::string remedy_for_one_node(const Environment& environment);

}  // namespace ddp::launch
