// What a scheduler says of the job in the environment of its processes. Pure.
#pragma once

#include <optional>
#include <string>

#include "launcher/base/command.h"

namespace ddp::launch {

enum class Scheduler { None, Auto, Slurm, Mpi };

/// An option's value and the variable that it comes from; empty: the scheduler does not say.
struct SchedulerFact {
  std::string value{};
  std::string variable{};
};

struct SchedulerFacts {
  std::string name;         // "Slurm", "MPI"
  SchedulerFact nodes;      // one ddp-run runs on each
  SchedulerFact node_rank;  // of this one
  SchedulerFact nproc;      // workers on this node
  SchedulerFact host;       // where all nodes meet: the first of them
  SchedulerFact port;
  SchedulerFact run_id;
  std::string hint{};  // what looks wrong; empty: nothing
};

/// Slurm: a step of srun, or an allocation. Mpi: Open MPI (OMPI_COMM_WORLD_*), or MPICH and its
/// relatives (PMI_*); they do not name the first host, so MASTER_ADDR does, or Slurm's node list.
/// Auto: the first of these whose processes run here: srun's step, MPI. nullopt: none.
/// Errors are LaunchErrors (2): the scheduler asked for is not there, or starts several ddp-runs
/// on a node.
std::optional<SchedulerFacts> scheduler_facts(Scheduler scheduler, const Environment& environment);

/// The scheduler that started this process as one of several nodes; nullptr: none.
const char* scheduler_of_several_nodes(const Environment& environment);

}  // namespace ddp::launch
