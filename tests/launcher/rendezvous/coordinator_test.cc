// The host of the rendezvous learns of other hosts and of later rounds.
#include "launcher/rendezvous/host/coordinator.h"

#include <sys/socket.h>

#include <climits>
#include <memory>
#include <string>
#include <utility>

#include "tests/launcher/rendezvous/membership_job.h"

namespace ddp::launch::membership {
namespace {

constexpr long long kTenure = 1LL << 36;

// A host of one node, which is connected and has not joined yet.
struct Host {
  explicit Host(JobHistory history = {}, bool epochs_are_granted = false)
      : rules(rules_of(epochs_are_granted)), coordinator(rules, std::move(history), "", {}, {}) {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    node = std::make_unique<ControlChannel>(fds[0], ControlChannel::Side::kAgent, "");
    auto channel = std::make_unique<ControlChannel>(fds[1], ControlChannel::Side::kHost, "");
    const Hello hello = Job(rules).hello_of(2);
    node->send(hello);
    for (int i = 0; i < 100; ++i) {
      node->handle();
      channel->handle();
      if (channel->take()) break;
    }
    REQUIRE(channel->state() == ControlChannel::State::kOpen);
    coordinator.adopt({std::move(channel), hello});
  }
  static MembershipRules rules_of(bool epochs_are_granted) {
    MembershipRules rules = elastic(1, 1);
    rules.epochs_are_granted = epochs_are_granted;
    return rules;
  }
  void join() {
    node->send(Join{6000});
    for (int i = 0; i < 10; ++i) {
      node->handle();
      coordinator.handle({});
    }
  }
  void hear(long long epoch) { coordinator.hear({.id = "other", .run_id = "job", .epoch = epoch}); }
  bool was_proposed_a_round() {
    node->handle();
    while (const auto message = node->take()) {
      if (std::holds_alternative<Round>(*message)) return true;
    }
    return false;
  }

  MembershipRules rules;
  Coordinator coordinator;
  std::unique_ptr<ControlChannel> node;
};

TEST_CASE("a host that hears of a later round proposes none of its own any more") {
  const bool superseded = GENERATE(false, true);
  Host host;
  if (superseded) host.hear(5);
  host.join();
  CHECK(host.was_proposed_a_round() == !superseded);
  CHECK(host.coordinator.has_lost_mandate() == superseded);
}

TEST_CASE("of two hosts without a round the one at the lower address stays") {
  Host host;
  host.coordinator.set_place({"10.0.0.2", 29400});
  const std::string other = GENERATE("10.0.0.1", "10.0.0.3");
  const bool has_begun = GENERATE(false, true);
  if (has_begun) host.join();
  host.coordinator.hear(
      {.id = "other", .run_id = "job", .hosts = true, .address = other, .port = 29400});
  CHECK(host.coordinator.has_lost_mandate() == (other == "10.0.0.1" && !has_begun));
}

TEST_CASE("a host with an authority for its epochs heeds no other agent's") {
  Host host({.rounds = 1, .epoch = 7, .nodes = 1}, /*epochs_are_granted=*/true);
  host.hear(8);
  CHECK_FALSE(host.coordinator.has_lost_mandate());
  host.join();
  REQUIRE(host.coordinator.awaits_epoch());
  host.coordinator.grant_epoch(8);
  CHECK(host.was_proposed_a_round());
}

TEST_CASE("a host that steps down knows the epochs that it must not propose again") {
  const long long unused = 5 * kTenure;
  SECTION("of a round that has never run, though no node reports it any more") {
    Host host({.rounds = 1, .epoch = 7, .nodes = 3, .unused = unused});
    CHECK(host.coordinator.later_epoch() == unused);
  }
  SECTION("of a round that it has proposed itself") {
    Host host({.rounds = 1, .epoch = 7, .alone = true, .unused = unused});
    host.join();
    REQUIRE(host.was_proposed_a_round());
    CHECK(host.coordinator.later_epoch() == host.coordinator.status().epoch);
    CHECK(host.coordinator.later_epoch() > unused);
  }
  SECTION("of a later round that it has heard of") {
    Host host({.rounds = 1, .epoch = 7, .nodes = 3, .unused = unused});
    host.hear(6 * kTenure);
    CHECK(host.coordinator.later_epoch() == 6 * kTenure);
  }
}

TEST_CASE("an epoch that no host can have reached is not heeded") {
  const long long last = LLONG_MAX / 2;
  Host host;
  host.hear(last);
  CHECK_FALSE(host.coordinator.has_lost_mandate());
  CHECK(host.coordinator.later_epoch() < kTenure);
  host.join();
  CHECK(host.was_proposed_a_round());
}

}  // namespace
}  // namespace ddp::launch::membership
