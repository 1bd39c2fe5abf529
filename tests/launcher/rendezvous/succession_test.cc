// A node that has lost its host decides who hosts next.
#include "launcher/rendezvous/round/succession.h"

#include <algorithm>

#include "launcher/rendezvous/round/epochs.h"
#include "tests/launcher/rendezvous/membership_job.h"

namespace ddp::launch::membership {
namespace {

using Found = Inquiry::Found;
using Kind = Succession::Step::Kind;

constexpr long long kEpoch = 7;
const Place kEndpoint{"10.0.0.1", 29400};  // where node 1 hosted the last round

Place place_of(int node) { return {Job::address_of(node), 5000 + node}; }

// Nodes 1 to `nodes`; this one is node `own`. As many successors as a round of so many has.
LastRound hosted_by_first(int nodes, int own) {
  LastRound last{.node = own, .took_part = true, .begun = true, .host_id = "1", .host = kEndpoint};
  last.round.info.epoch = kEpoch;
  last.round.info.group_world_size = nodes;
  const int most = std::min(nodes, 1 + static_cast<int>(kMaxSuccessors));
  for (int node = 2; node <= most; ++node)
    last.round.successors.push_back({node, Job::address_of(node), 5000 + node});
  return last;
}

// A node that asks all known ones, of which these have been found; the others are silent.
struct Voter {
  Voter(const LastRound& last, std::optional<Place> lost)
      : succession(last, std::to_string(last.node), lost, now + seconds(1)) {
    for (const Place& place : succession.places())
      findings.push_back({.place = place, .found = Found::kSilence});
  }
  Inquiry::Finding& at(const Place& place) {
    const auto found = std::find_if(findings.begin(), findings.end(),
                                    [&](const auto& one) { return one.place == place; });
    REQUIRE(found != findings.end());
    return *found;
  }
  Voter& refused(const Place& place) {
    at(place).found = Found::kRefused;
    at(place).gone = now;
    return *this;
  }
  Voter& waits(const Place& place, long long epoch = kEpoch) {
    at(place).found = Found::kAnswer;
    at(place).status = {.id = "another", .run_id = "job", .epoch = epoch};
    return *this;
  }
  Voter& followed_by(const Nodes& nodes) {
    for (const int node : nodes) {
      Hello hello;
      hello.id = std::to_string(node);
      hello.epoch = kEpoch;
      followers.push_back(hello);
    }
    return *this;
  }
  Voter& holds_later(int node, long long epoch, bool alone) {
    Hello hello;
    hello.id = std::to_string(node);
    hello.epoch = epoch;
    hello.returned = true;
    hello.alone = alone;
    later.push_back(hello);
    return *this;
  }
  Succession::Step next() {
    return succession.next(findings, {now, own, followers, later, endpoints}, /*alone=*/false);
  }

  Clock::time_point now = Clock::now();
  Succession succession;
  std::vector<Inquiry::Finding> findings, endpoints;
  std::vector<Hello> followers, later;
  Place own{"10.0.0.9", 5009};
};

TEST_CASE("the first in the order of succession hosts with a majority of the last round") {
  Voter second(hosted_by_first(5, 2), kEndpoint);
  second.refused(kEndpoint).waits(place_of(3)).waits(place_of(4));
  CHECK(second.next().kind == Kind::kWait);
  CHECK(second.followed_by({3, 4}).next().kind == Kind::kHost);
  Voter third(hosted_by_first(5, 3), kEndpoint);
  third.refused(kEndpoint).waits(place_of(2));
  CHECK(third.next().place == place_of(2));
}

TEST_CASE("all that are left go on, but for the deaths that are found too late") {
  Voter second(hosted_by_first(3, 2), kEndpoint);
  second.refused(kEndpoint).refused(place_of(3));
  CHECK(second.next().kind == Kind::kHost);
  second.at(place_of(3)).gone = second.now + seconds(2);
  CHECK(second.next().kind == Kind::kWait);
}

TEST_CASE("a host that was lost before its first round is no further death") {
  // Node 1 is cut off and silent, node 2 has taken its place and died: node 3 is one of two.
  Voter third(hosted_by_first(3, 3), place_of(2));
  REQUIRE(third.succession.places() == std::vector<Place>{kEndpoint, place_of(2)});
  third.refused(place_of(2));
  CHECK(third.next().kind == Kind::kWait);
  CHECK(third.succession.mandate().dead == 1);
  CHECK(third.succession.missing() == "10.0.0.1:29400 is silent, 10.0.0.2:5002 is gone");
  CHECK(third.waits(kEndpoint).next().place == kEndpoint);
}

TEST_CASE("a host that no node of the last round knows is asked last and never counts") {
  const Place elsewhere{"10.0.0.2", 29400};  // an endpoint, at which node 2 was reached
  Voter third(hosted_by_first(4, 3), elsewhere);
  REQUIRE(third.succession.places() ==
          std::vector<Place>{kEndpoint, place_of(2), place_of(4), elsewhere});
  third.refused(elsewhere).refused(kEndpoint).refused(place_of(2));
  CHECK(third.next().kind == Kind::kWait);
  CHECK(third.succession.mandate().dead == 2);
  third.waits(elsewhere, kEpoch + 1);
  CHECK(third.next().place == elsewhere);
}

TEST_CASE("half of the last round goes on under the agent that hosted it, and under no other") {
  LastRound last = hosted_by_first(4, 1);
  last.round.successors.front().node = 9;  // numbers of nodes are each host's own
  Voter first(last, std::nullopt);
  CHECK(first.succession.places() == std::vector<Place>{place_of(2), place_of(3), place_of(4)});
  CHECK(first.next().kind == Kind::kWait);
  CHECK(first.followed_by({3}).next().kind == Kind::kHost);
  // It has hosted since, and no round.
  Voter second(hosted_by_first(4, 2), std::nullopt);
  CHECK(second.succession.places() == std::vector<Place>{kEndpoint, place_of(3), place_of(4)});
  CHECK(second.followed_by({3}).next().kind == Kind::kWait);
  CHECK(second.followed_by({4}).next().kind == Kind::kHost);
}

TEST_CASE("the death of a host that had no part in its round does not count") {
  LastRound last = hosted_by_first(3, 2);
  last.round.info.group_world_size = 2;
  Voter second(last, kEndpoint);
  second.refused(kEndpoint);
  CHECK(second.next().kind == Kind::kWait);
  CHECK(second.followed_by({3}).next().kind == Kind::kHost);
  SECTION("nor does it follow itself") {
    last.took_part = false;
    last.host_id = std::to_string(last.node);
    CHECK(Voter(last, std::nullopt).followed_by({3}).next().kind == Kind::kHost);  // half
    CHECK(Voter(last, std::nullopt).next().kind == Kind::kWait);
  }
  SECTION("of a large round that is not known") {
    const auto dead = [](int nodes) {
      Voter voter(hosted_by_first(nodes, 2), kEndpoint);
      voter.refused(kEndpoint).next();
      return voter.succession.mandate().dead;
    };
    CHECK(dead(static_cast<int>(kMaxSuccessors)) == 1);
    CHECK(dead(static_cast<int>(kMaxSuccessors) + 1) == 0);
  }
}

TEST_CASE("a round that may never have begun gives no right without all of its nodes") {
  LastRound last = hosted_by_first(4, 2);
  last.begun = false;
  Voter second(last, kEndpoint);
  second.followed_by({3}).refused(kEndpoint).refused(place_of(4));
  CHECK(second.next().kind == Kind::kWait);  // node 4 may have been with others before it died
  CHECK(second.followed_by({4}).next().kind == Kind::kHost);
  CHECK(second.succession.mandate().dead == 1);
  SECTION("nor the host that has proposed it") {
    last.host_id = std::to_string(last.node);
    CHECK(Voter(last, std::nullopt).followed_by({3, 4}).next().kind == Kind::kWait);
  }
}

TEST_CASE(
    "a round that may never have begun goes on with all of its nodes, those of them that returned "
    "as well") {
  LastRound last = hosted_by_first(3, 2);
  last.begun = false;
  Voter second(last, kEndpoint);
  second.refused(kEndpoint).followed_by({1, 3});
  for (Hello& one : second.followers) one.returned = true;
  CHECK(second.next().kind == Kind::kHost);
  second.followers.pop_back();
  CHECK(second.next().kind == Kind::kWait);  // the one that follows may be the dead one
}

TEST_CASE("the nodes of a round are known by what they remember, not by their addresses") {
  Round last = hosted_by_first(3, 2).round;
  last.successors[1].member = "third";
  Hello hello;
  hello.port = 5003;  // node 3's
  hello.member = "another";
  hello.epoch = kEpoch - 1;
  CHECK_FALSE(took_part(last, hello));
  hello.member = "third";  // it has not accepted the round
  CHECK(took_part(last, hello));
  last.info.epoch = tenure_after(kEpoch, "host");
  CHECK(took_part(last, hello));
  hello.epoch = tenure_after(kEpoch, "rival");  // of a round that may run instead
  CHECK_FALSE(took_part(last, hello));
}

TEST_CASE("a host at an endpoint is followed if it has a later round than this node") {
  Voter second(hosted_by_first(3, 2), kEndpoint);
  const Place endpoint{"10.0.0.4", 29400}, elsewhere{"10.0.0.5", 5005};
  second.endpoints = {{.place = endpoint, .found = Found::kAnswer}};
  Status& status = second.endpoints.front().status;
  status = {.id = "another", .run_id = "job", .epoch = kEpoch, .hosts = true};
  CHECK(second.next().kind == Kind::kWait);  // a job of nodes that know nothing of this one
  status.epoch = kEpoch + 1;
  CHECK(second.next().place == endpoint);
  status.hosts = false;
  CHECK(second.next().kind == Kind::kWait);
  status.address = elsewhere.address;
  status.port = elsewhere.port;
  CHECK(second.next().place == elsewhere);
}

TEST_CASE("an agent hosts once it holds the node that was alone in the latest round") {
  // Node 1, which is silent, has gone on alone as the host of half of the last round.
  Voter second(hosted_by_first(2, 2), kEndpoint);
  CHECK(second.next().kind == Kind::kWait);
  CHECK(second.holds_later(1, kEpoch + 1, /*alone=*/true).next().kind == Kind::kHost);
  CHECK(second.succession.mandate().later == kEpoch + 1);
  CHECK(second.succession.mandate().holds());
  SECTION("nowhere that others reach") {
    second.own = {};
    CHECK(second.next().kind == Kind::kWait);
  }
  SECTION("but not if another node knows a later round, which had others") {
    CHECK(second.holds_later(3, kEpoch + 2, /*alone=*/false).next().kind == Kind::kWait);
    CHECK(second.holds_later(3, kEpoch + 3, /*alone=*/true).next().kind == Kind::kHost);
    CHECK(second.succession.mandate().later == kEpoch + 3);
  }
  SECTION("but not if an agent that runs knows a round as late") {
    second.waits(kEndpoint, kEpoch + 1);
    CHECK(second.next().place == kEndpoint);
  }
}

TEST_CASE("a spare node hosts nothing, whatever its number is") {
  LastRound last = hosted_by_first(3, 2);
  last.took_part = false;
  Voter spare(last, kEndpoint);
  REQUIRE(spare.findings.size() == 3);
  spare.refused(kEndpoint).refused(place_of(2)).refused(place_of(3));
  CHECK(spare.next().kind == Kind::kWait);
  CHECK(spare.waits(place_of(3)).next().place == place_of(3));
}

}  // namespace
}  // namespace ddp::launch::membership
