// Parses --hosts. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::launch {

struct Host {
  std::string destination;  // for ssh: [user@]name
  std::string name;         // by which other hosts know it
  int slots = 0;            // workers; 0: not given
  std::string gpus{};       // for CUDA_VISIBLE_DEVICES; empty: all
  bool operator==(const Host&) const = default;
};

/// Parses "a,user@b:4,n[1-3]:8,[fe80::1]:2,c:0,2,3" into hosts in the order of node ranks; several
/// numbers are GPUs, one is slots. Throws LaunchError (2).
std::vector<Host> parse_hosts(std::string_view text);

/// Parses one host per line, in the syntax of --hosts or, as for mpirun and DeepSpeed, "host
/// slots=4", then "gpus=0,2"; "host 4 queue CPUs" as in SGE's PE_HOSTFILE, whose slots of a
/// repeated host are summed. The lines of a host that is repeated without slots are its slots, as
/// in PBS. `#` begins a comment. Throws LaunchError (2) with `file` and the line.
std::vector<Host> parse_hostfile(const std::string& file, std::string_view text);

}  // namespace ddp::launch
