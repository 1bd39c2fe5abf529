// Ranks started directly by srun or mpirun, without a launcher: translates the scheduler's
// variables into torchrun's. Pure.
#pragma once

#include <map>
#include <string>

namespace ddp::train {

using Variables = std::map<std::string, std::string>;

/// Returns RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and MASTER_PORT as far as SLURM_* of
/// a step, OMPI_COMM_WORLD_* or PMI_* define them. Empty if a launcher has set RANK or
/// WORLD_SIZE; if MASTER_ADDR is missing, as tasks without it are separate runs; and for a
/// single task.
Variables launcher_variables(const Variables& environment);

/// Returns this process's environment.
Variables whole_environment();

}  // namespace ddp::train
