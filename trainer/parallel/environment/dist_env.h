// This process's rank and group, read once from the environment that ddp-run or torchrun sets.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::train {

/// Ranks started by srun or mpirun directly: see scheduler_env.h.
/// Without a launcher (RANK and WORLD_SIZE unset): one process, rank 0 of 1, `launched` false.
struct DistEnv {
  int rank = 0;
  int local_rank = 0;
  int world_size = 1;
  int local_world_size = 1;
  std::string master_addr = "127.0.0.1";
  uint16_t master_port = 0;
  bool agent_store = false;  ///< The launcher serves the store; otherwise rank 0 does.
  std::string restart_count = "0";
  bool launched = false;

  bool is_main() const { return rank == 0; }
  bool single_node() const { return local_world_size == world_size; }

  /// Throws UserError, naming the variable, if the set is incomplete or invalid
  /// (WORLD_SIZE=0, RANK >= WORLD_SIZE, a port out of range).
  static DistEnv from_environment();
};

}  // namespace ddp::train
