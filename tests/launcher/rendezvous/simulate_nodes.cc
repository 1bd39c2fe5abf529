// Many nodes against one host of a rendezvous, to see what they cost it. The host is a process with
// the real Coordinator and the real store in one loop, as an agent has them; the nodes are
// connections of the real control channel, all in this process, and their workers real clients of
// the store. Prints a line of JSON for each phase; exit code 1 if a round is not as it should be.
//
//   simulate_nodes [--nodes=1000] [--workers=8] [--idle=SECONDS] [--failures=N] [--most-mib=N]
// With --failures all ranks of all nodes fail so often, and nothing else happens. With --most-mib a
// host that ever needed more memory is a failure.
#include "tests/launcher/rendezvous/simulated_host.h"
#include "tests/launcher/rendezvous/simulated_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

using namespace ddp::test;

struct Options {
  int nodes = 1000;
  int workers = 8;
  int idle = 0;
  int failures = 0;
  int most_mib = 0;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    const auto take = [&](std::string_view name, int& value) {
      if (text.starts_with(name)) value = std::stoi(std::string(text.substr(name.size())));
    };
    take("--nodes=", options.nodes);
    take("--workers=", options.workers);
    take("--idle=", options.idle);
    take("--failures=", options.failures);
    take("--most-mib=", options.most_mib);
  }
  return options;
}

class Report {
 public:
  Report(SimulatedNodes& nodes, const SimulatedHost*& host) : nodes_(nodes), host_(host) {}

  template <typename Body>
  void phase(const char* name, const Body& body) {
    const Traffic before = nodes_.traffic();
    const double cpu = host_->cpu_seconds();
    const auto began = ddp::launch::Clock::now();
    const SimulatedHost* const host = host_;
    body();
    const std::chrono::duration<double> wall = ddp::launch::Clock::now() - began;
    const Traffic after = nodes_.traffic();
    fmt::print(
        "{{\"phase\": \"{}\", \"nodes\": {}, \"seconds\": {:.4f}, \"host_cpu_seconds\": {:.4f}, "
        "\"control_bytes\": {}, \"store_bytes\": {}, \"host_kib\": {}}}\n",
        name, nodes_.count(), wall.count(), host_->cpu_seconds() - (host == host_ ? cpu : 0.0),
        after.control - before.control, after.store - before.store,
        largest_ = std::max(largest_, host_->resident_kib()));
    std::fflush(stdout);
  }

  void check(int most_mib) const {
    if (most_mib > 0 && largest_ > most_mib * 1024L) {
      throw std::runtime_error(
          fmt::format("the host needed {} MiB of at most {}", largest_ / 1024, most_mib));
    }
  }

 private:
  SimulatedNodes& nodes_;
  const SimulatedHost*& host_;
  long largest_ = 0;
};

void fail_all(const Options& options) {
  SimulatedHost first(options.nodes, {});
  const SimulatedHost* host = &first;
  SimulatedNodes nodes(options.workers, first);
  Report report(nodes, host);
  report.phase("form", [&] { nodes.start(options.nodes); });
  for (int i = 0; i < options.failures; ++i)
    report.phase("all ranks fail", [&] { nodes.fail_all(); });
  report.phase("end", [&] { nodes.end(); });
  if (!first.ends_well()) throw std::runtime_error("the host did not end well");
  report.check(options.most_mib);
}

void simulate(const Options& options) {
  const int some = std::max(1, options.nodes / 10);
  const SimulatedHost first(options.nodes, {});
  const SimulatedHost* host = &first;
  SimulatedNodes nodes(options.workers, first);
  Report report(nodes, host);
  const auto workers = [&] {
    if (options.workers > 0)
      report.phase("workers meet in the store", [&] { nodes.run_workers(); });
  };
  report.phase("form", [&] { nodes.start(options.nodes); });
  workers();
  if (options.idle > 0) report.phase("idle", [&] { nodes.idle(options.idle); });
  report.phase("10 % leave", [&] { nodes.leave(some); });
  workers();
  report.phase("10 % join", [&] { nodes.start(some); });
  workers();
  report.phase("a worker fails", [&] { nodes.fail_one(); });
  report.phase("all ranks fail", [&] { nodes.fail_all(); });
  std::unique_ptr<SimulatedHost> second;
  report.phase("host killed", [&] {
    first.kill();
    second = std::make_unique<SimulatedHost>(options.nodes, nodes.history());
    host = second.get();
    nodes.move_to(*second);
  });
  workers();
  report.phase("end", [&] { nodes.end(); });
  if (!second->ends_well()) throw std::runtime_error("the host did not end well");
  report.check(options.most_mib);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    options.failures > 0 ? fail_all(options) : simulate(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "simulate_nodes: {}\n", error.what());
    return 1;
  }
}
