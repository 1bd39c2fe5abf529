// More connections than descriptors: nothing spins, nothing breaks, and those that wait are served
// once there is room. And whose limit is raised.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "launcher/base/system/acceptor.h"
#include "launcher/base/system/sockets.h"
#include "launcher/rendezvous/host/coordinator.h"
#include "launcher/store/store_service.h"
#include "tests/launcher/ddp_run.h"
#include "tests/support/catch.h"

namespace ddp::launch {
namespace {

using Catch::Contains;

int connected_to(int port) {
  const int fd = begin_connect(*parse_address("127.0.0.1", port));
  pollfd ready{fd, POLLOUT, 0};
  REQUIRE(::poll(&ready, 1, 10'000) == 1);
  return fd;
}

// poll() refuses more descriptors than the limit, so that it cannot be 0.
rlim_t lowest_free() {
  const int fd = ::dup(0);
  ::close(fd);
  return static_cast<rlim_t>(fd);
}

/// As long as it lives, this process gets no descriptor from `limit` on.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t limit) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{limit, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

bool would_wake(const PollHandler& handler) {
  std::vector<pollfd> fds;
  handler.add_poll_fds(fds);
  return ::poll(fds.data(), fds.size(), 0) > 0;
}

template <typename Done>
void serve(PollHandler& handler, const Done& done) {
  const auto limit = Clock::now() + std::chrono::seconds(20);
  while (!done() && Clock::now() < limit) {
    std::vector<pollfd> fds;
    handler.add_poll_fds(fds);
    ::poll(fds.data(), fds.size(), 10);
    handler.handle(fds);
  }
}

TEST_CASE("an acceptor without descriptors rests, warns once, and goes on") {
  const int listener = listen_on(*parse_address("127.0.0.1", 0));
  const int client = connected_to(port_of(listener));
  Acceptor acceptor("the test");
  {
    const FewDescriptors none(lowest_free());
    CHECK(acceptor.accept(listener) == -1);
    REQUIRE(acceptor.rests_until());
    CHECK_THAT(acceptor.take_warning(), Contains("the test cannot accept connections for now: ") &&
                                            Contains("Too many open files"));
    while (!acceptor.wake()) ::usleep(1000);
    CHECK(acceptor.accept(listener) == -1);
    CHECK(acceptor.rests_until());
    CHECK(acceptor.take_warning().empty());
  }
  CHECK(acceptor.accept(listener) == -1);  // at rest
  while (!acceptor.wake()) ::usleep(1000);
  const int accepted = acceptor.accept(listener);
  CHECK(accepted >= 0);
  CHECK(acceptor.accept(listener) == -1);
  CHECK_FALSE(acceptor.rests_until());
  for (const int fd : {listener, client, accepted}) ::close(fd);
}

TEST_CASE("a socket that can never accept is left alone for a while, with one warning") {
  const int listener = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  Acceptor acceptor("the test");
  CHECK(acceptor.accept(listener) == -1);
  CHECK(acceptor.rests_until());
  CHECK_THAT(acceptor.take_warning(),
             Contains("the test cannot accept connections for now: ") && !Contains("ulimit"));
  ::close(listener);
}

std::unique_ptr<Coordinator> host_at(int listener) {
  MembershipRules rules{.run_id = "job", .min_nodes = 1, .max_nodes = 2};
  return std::make_unique<Coordinator>(rules, JobHistory{}, "", std::vector<int>{listener},
                                       Coordinator::StoreClients{});
}

// That takes itself for one of a process with so many descriptors.
std::unique_ptr<Coordinator> host_below(rlim_t limit, int listener) {
  const FewDescriptors few(limit);
  return host_at(listener);
}

TEST_CASE("a rendezvous without descriptors is not woken by those that wait") {
  const int listener = listen_on(*parse_address("127.0.0.1", 0));
  const int port = port_of(listener);
  const auto host = host_at(listener);
  ControlChannel agent(connected_to(port), ControlChannel::Side::kAgent, "");
  agent.handle();
  {
    const FewDescriptors none(lowest_free());
    CHECK(would_wake(*host));
    host->handle({});
    CHECK_FALSE(would_wake(*host));
    CHECK(host->deadline() <= Clock::now() + std::chrono::seconds(1));
    CHECK_THAT(host->take_note(), Contains("the rendezvous cannot accept connections"));
    CHECK(host->take_note().empty());
  }
  serve(*host, [&] {
    agent.handle();
    return agent.state() == ControlChannel::State::kOpen;
  });
  CHECK(agent.state() == ControlChannel::State::kOpen);
}

TEST_CASE("a store without descriptors is not woken by those that wait") {
  const int listener = listen_on(*parse_address("127.0.0.1", 0));
  StoreService store(listener);
  const int client = connected_to(port_of(listener));
  {
    const FewDescriptors none(lowest_free());
    CHECK(would_wake(store));
    store.handle({});
    CHECK_FALSE(would_wake(store));
    CHECK_THAT(store.take_note(), Contains("the workers' store cannot accept connections"));
  }
  serve(store, [&] { return store.connections() == 1; });
  CHECK(store.connections() == 1);
  ::close(client);
  ::close(listener);
}

TEST_CASE("one turn of the store accepts a bounded number of connections") {
  const int listener = listen_on(*parse_address("127.0.0.1", 0));
  StoreService store(listener);
  std::vector<int> clients;
  for (int i = 0; i < 300; ++i) clients.push_back(connected_to(port_of(listener)));
  store.handle({});
  CHECK(store.connections() == 256);
  store.handle({});
  CHECK(store.connections() == 300);
  for (const int fd : clients) ::close(fd);
  ::close(listener);
}

TEST_CASE("strangers that say nothing make room for an agent") {
  const int listener = listen_on(*parse_address("127.0.0.1", 0));
  const int port = port_of(listener);
  const auto host = host_below(160, listener);
  std::vector<int> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(connected_to(port));
    host->handle({});
  }
  ControlChannel agent(connected_to(port), ControlChannel::Side::kAgent, "");
  serve(*host, [&] {
    agent.handle();
    return agent.state() == ControlChannel::State::kOpen;
  });
  CHECK(agent.state() == ControlChannel::State::kOpen);
  for (const int fd : strangers) ::close(fd);
}

}  // namespace
}  // namespace ddp::launch

namespace ddp::test {
namespace {

using Catch::Contains;

// What `ulimit` says of the worker, and /proc of the process that has started it.
Finished limits_of_a_job(const std::string& limits) {
  const TempFolder tmp;
  auto options = stub_job(tmp, {}, {});
  options.argv.pop_back();  // not the stub
  options.argv.insert(
      options.argv.end(),
      {"/bin/sh", "-c",
       "echo worker $(ulimit -Sn) $(ulimit -Hn); awk '/open files/ {print \"agent\", "
       "$4, $5}' /proc/$PPID/limits"});
  return run_to_end(in_shell(limits + "; exec \"$@\"", options));
}

TEST_CASE("ddp-run raises its limit of descriptors, its workers keep theirs") {
  const Finished job = limits_of_a_job("ulimit -Sn 100; ulimit -Hn 512");
  CHECK(job.exit == 0);
  CHECK(job.out == "worker 100 512\nagent 512 512\n");
}

TEST_CASE("a limit of descriptors that cannot be raised stays") {
  const Finished job = limits_of_a_job("ulimit -n 256");
  CHECK(job.exit == 0);
  CHECK(job.out == "worker 256 256\nagent 256 256\n");
}

}  // namespace
}  // namespace ddp::test
