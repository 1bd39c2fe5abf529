// The command line of a job on other hosts (--hosts): a plain struct.
#pragma once

#include <string>
#include <vector>

namespace ddp::launch {

struct HostsRequest {
  std::string hosts;    // --hosts; empty: the file
  std::string file;     // --hosts=@FILE; empty: none
  std::string exports;  // --export
  std::string nnodes;   // as given; empty: one per host
  std::string nproc{};  // --nproc-per-node, likewise
  int min_nodes = 0;    // 0: the number of hosts
  int max_nodes = 0;
  bool dynamic = false;          // c10d
  bool starts_on_first = false;  // this is the first host: no remote shell is needed there
  bool slots_count = true;       // a host's slots are its --nproc-per-node
  bool has_address = false;      // --rdzv-endpoint or --master-addr
  bool has_port = false;
  bool has_run_id = false;
  bool has_token = false;
  std::vector<std::string> options;        // for ddp-run on all hosts
  std::vector<std::string> first_options;  // on the first only: they name files
  std::vector<std::string> program;        // with its arguments
};

}  // namespace ddp::launch
