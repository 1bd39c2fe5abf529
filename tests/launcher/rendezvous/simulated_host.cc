#include "tests/launcher/rendezvous/simulated_host.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <string>

#include "launcher/base/system/sockets.h"
#include "launcher/rendezvous/host/coordinator.h"
#include "launcher/store/store_service.h"

namespace ddp::test {
namespace {

using launch::Clock;

launch::MembershipRules rules_for(int min_nodes, int nodes) {
  launch::MembershipRules rules{.run_id = "simulation",
                                .min_nodes = min_nodes,
                                .max_nodes = nodes,
                                .restarts = {.max_restarts = 3}};
  rules.heartbeat = std::chrono::seconds(5);  // so that a slow machine loses nobody
  rules.host_id = "0";
  return rules;
}

// As WorkerProcesses does for an agent, with the store in the same process: every participant is
// called after every wake.
void serve(launch::Coordinator& coordinator, launch::StoreService& store) {
  std::vector<pollfd> fds;
  while (!coordinator.over()) {
    fds.clear();
    coordinator.add_poll_fds(fds);
    store.add_poll_fds(fds);
    const auto left = *coordinator.deadline() - Clock::now();
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    ::poll(fds.data(), fds.size(), static_cast<int>(std::clamp<long>(ms, 0, 1000)));
    coordinator.handle(fds);
    store.handle(fds);
  }
  coordinator.see_off(Clock::now() + std::chrono::seconds(20));
}

void run_host(const launch::MembershipRules& rules, const launch::JobHistory& history, int pipe) {
  const int listener = launch::listen_on(*launch::parse_address("127.0.0.1", 0));
  launch::Coordinator coordinator(rules, history, "", {listener}, {});
  const int store_listener = launch::listen_for_peers("127.0.0.1");
  launch::StoreService store(store_listener);
  const int ports[2] = {launch::port_of(listener), launch::port_of(store_listener)};
  [[maybe_unused]] const auto told = ::write(pipe, ports, sizeof ports);
  serve(coordinator, store);
}

}  // namespace

SimulatedHost::SimulatedHost(int nodes, const launch::JobHistory& history) : max_nodes_(nodes) {
  int ends[2];
  if (::pipe(ends) != 0 || (pid_ = ::fork()) < 0) throw std::runtime_error("cannot start a host");
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(ends[1], 3);
    ::close_range(4, ~0U, 0);  // the nodes' connections
    run_host(rules_for(min_nodes(), nodes), history, 3);
    ::_exit(0);
  }
  ::close(ends[1]);
  const auto got = ::read(ends[0], ports_, sizeof ports_);
  ::close(ends[0]);
  if (got != sizeof ports_) throw std::runtime_error("the host has not begun");
}

launch::MembershipRules SimulatedHost::rules() const { return rules_for(min_nodes(), max_nodes_); }

SimulatedHost::~SimulatedHost() {
  if (pid_ == 0) return;
  kill();
  ::waitpid(pid_, nullptr, 0);
}

void SimulatedHost::kill() const { ::kill(pid_, SIGKILL); }

bool SimulatedHost::ends_well() {
  int status = -1;
  ::waitpid(std::exchange(pid_, 0), &status, 0);
  return status == 0;
}

double SimulatedHost::cpu_seconds() const {
  double nanoseconds = 0;
  std::ifstream("/proc/" + std::to_string(pid_) + "/schedstat") >> nanoseconds;
  return nanoseconds / 1e9;
}

long SimulatedHost::resident_kib() const {
  std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
  long kib = 0;
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") status >> kib;
  }
  return kib;
}

}  // namespace ddp::test
