// Ranks that srun or mpirun start themselves, without a launcher: what their variables mean in
// those of torchrun. Pure.
#pragma once

#include <map>
#include <string>

namespace ddp::train {

using Variables = std::map<std::string, std::string>;

/// RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and MASTER_PORT from SLURM_* of a step,
/// OMPI_COMM_WORLD_* or PMI_*; only those that they give. Empty where a launcher has set RANK or
/// WORLD_SIZE; where MASTER_ADDR is missing: tasks without it are runs of their own; and for a
/// single task.
Variables launcher_variables(const Variables& environment);

/// This process's environment.
Variables whole_environment();

}  // namespace ddp::train
