// Several ddp-run on this machine, as the nodes of one job.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/launcher/ddp_run.h"
#include "tests/support/loopback.h"

namespace ddp::test {

/// Its exit code, once all of its output is there and nothing of it is left.
inline int finish(ChildProgram& node) {
  node.wait_all_gone();
  return node.wait_exit();
}

/// Whether the text was read from the node so far.
inline bool ever(const ChildProgram& node, const std::string& text) {
  return node.out().find(text) != std::string::npos || node.err().find(text) != std::string::npos;
}

/// Workers that print who they are and stay.
inline const std::vector<std::string> kStay{"parent", "env=TORCHELASTIC_RESTART_COUNT", "env=RANK",
                                            "env=WORLD_SIZE", "wait"};

struct Cluster {
  using Lines = std::vector<std::string>;

  TempFolder tmp;
  std::string host = "127.0.0.1";
  std::string port = std::to_string(unused_port());
  std::vector<std::unique_ptr<ChildProgram>> nodes{};

  std::string endpoint() const { return host + ":" + port; }

  ChildProgram& start(const Lines& options, const Lines& actions) {
    return start(stub_job(tmp, options, actions));
  }
  ChildProgram& start(ChildOptions child) {
    child.unset.insert(child.unset.end(), {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE"});
    nodes.push_back(std::make_unique<ChildProgram>(child));
    return *nodes.back();
  }
  /// With ranks of the user's choice.
  ChildProgram& fixed(int rank, int count, const Lines& options, const Lines& actions) {
    return start(fixed_options(rank, count, options), actions);
  }
  Lines fixed_options(int rank, int count, Lines options) const {
    options.insert(options.begin(),
                   {"--nnodes=" + std::to_string(count), "--node-rank=" + std::to_string(rank),
                    "--master-addr=" + host, "--master-port=" + port});
    return options;
  }
  ChildProgram& elastic(const std::string& nnodes, const Lines& options, const Lines& actions) {
    return start(elastic_options(nnodes, options), actions);
  }
  Lines elastic_options(const std::string& nnodes, Lines options = {}) const {
    options.insert(options.begin(),
                   {"--nnodes=" + nnodes, "--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoint()});
    return options;
  }
  /// Exit codes of the nodes in the order in which they were started.
  std::vector<int> exit_codes() {
    std::vector<int> codes;
    for (const auto& node : nodes) codes.push_back(finish(*node));
    return codes;
  }
};

}  // namespace ddp::test
