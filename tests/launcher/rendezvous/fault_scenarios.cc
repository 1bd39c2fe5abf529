// What happens to the nodes of a FaultSchedule.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "tests/launcher/rendezvous/fault_schedule.h"

namespace ddp::test {
namespace {

using namespace launch;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Net = SimulatedNetwork;

}  // namespace

void FaultSchedule::run() {
  for (int i = 0; i < count(); ++i) start(i);
  pass(seconds(10));
  require(running_round() == places(), "the first round has not begun");
  const int faults = number(1, 8);
  for (int i = 0; i < faults; ++i) {
    fail();
    pass(milliseconds(number(0, 15'000)));
  }
  settle();
  went_on_ = alive() > 0;
  finish();
}

void FaultSchedule::settle() {
  say("nothing fails any more");
  Net::heal_all();
  for (Node& node : nodes_) node.paused_until = {};
  for (int i = 0; returns_ && i < count(); ++i) {
    if (!nodes_[static_cast<std::size_t>(i)].waits_for_news()) start(i);
  }
  if (returns_) return reunite();
  const auto well = [this] {
    return alive() == 0 || running_round() == std::min(alive(), places());
  };
  const auto end = Net::now() + seconds(1'500);
  do {
    pass_until(end, well);
    // A round may be lost already, without its nodes' knowledge, and spares look for the job.
    pass(seconds(spares_ > 0 ? 60 : 10));
  } while (!well() && Net::now() < end);
  require(well(), "the nodes that are left form no job");
}

// All nodes have their files: none waits for one that cannot come.
void FaultSchedule::reunite() {
  const auto well = [this] { return running_round() == places(); };
  const auto end = Net::now() + seconds(120);
  while (pass_until(end, well)) {
    pass(seconds(spares_ > 0 ? 60 : 10));
    if (well()) return;
  }
  require(false, "all nodes are back, and form no job");
}

// All workers end with 0. A node without a part in the last round may know none of those that
// are left, and look for them.
void FaultSchedule::finish() {
  if (alive() == 0) return;
  finishing_ = true;
  std::vector<int> at_work;
  for (int i = 0; i < count(); ++i) {
    Node& node = nodes_[static_cast<std::size_t>(i)];
    if (!node.waits_for_news() || !node.round) continue;
    at_work.push_back(i);
    node.round.reset();
    ask(i, [&] { node.rendezvous->report_end({}); });
  }
  const bool well = pass_until(Net::now() + seconds(60), [&] {
    return std::none_of(at_work.begin(), at_work.end(), [this](int i) {
      return nodes_[static_cast<std::size_t>(i)].waits_for_news();
    });
  });
  require(well, "the job does not end with its workers");
}

void FaultSchedule::fail() {
  const int a = number(0, count() - 1);
  const int b = (a + number(1, count() - 1)) % count();
  switch (number(0, 6)) {
    case 0:
      say(fmt::format("-- cut {} and {}", a, b));
      return Net::cut(a, b);
    case 1:
      say(fmt::format("-- reset {} and {}", a, b));
      return Net::reset(a, b);
    case 2:
      say(fmt::format("-- pause {}", a));
      nodes_[static_cast<std::size_t>(a)].paused_until =
          Net::now() + milliseconds(number(100, 20'000));
      return;
    case 3:
      say(fmt::format("-- kill {}", a));
      return kill(a);
    case 4:
      say("-- heal");
      return Net::heal_all();
    case 5:
      return partition();
    case 6:
      if (!nodes_[static_cast<std::size_t>(a)].rendezvous && alive() > 0) start_anew(a);
      return;
    default:
      return;
  }
}

void FaultSchedule::partition() {
  std::string side;
  std::vector<bool> left;
  for (int i = 0; i < count(); ++i) {
    left.push_back(number(0, 1) == 1);
    side += left.back() ? '<' : '>';
  }
  say("-- partition " + side);
  for (int a = 0; a < count(); ++a) {
    for (int b = 0; b < a; ++b) {
      if (left[static_cast<std::size_t>(a)] != left[static_cast<std::size_t>(b)]) Net::cut(a, b);
    }
  }
}

// A node without a file is known to nobody, and knows nobody: docs/multi-node.md has the limits.
void FaultSchedule::start_anew(int i) {
  if (!files_) {
    Net::heal_all();
    for (Node& node : nodes_) node.paused_until = {};
  }
  start(i);
}

// The nodes after the first ones continue within seconds.
void FaultSchedule::lose_rack(bool silently) {
  for (int i = 0; i < count(); ++i) start(i);
  pass(seconds(40));
  require(running_round() == count(), "the first round has not begun");
  const int lost = count() / 2 - 1;
  for (int i = 0; i < lost; ++i) {
    for (int other = lost; silently && other < count(); ++other) Net::cut(i, other);
    if (!silently) kill(i);
  }
  say(fmt::format("{} nodes are lost", lost));
  const auto began = Net::now();
  const bool well = pass_until(began + seconds(600), [&] {
    return !nodes_.back().stops && nodes_.back().round && running_round() == count() - lost;
  });
  const std::chrono::duration<double> took = Net::now() - began;
  fmt::print("{} nodes lost {}: the others run after {:.1f} s\n", lost,
             silently ? "in silence" : "for good", took.count());
  // Silence, the wait for whoever may return, and their way to the new host: three times 15 s.
  require(well && took < seconds(50), "a lost rack takes too long");
}

// A node sleeps while its host is cut off and steps down, and while the others continue and end.
// The host's reply after that does not prove that the others have been with it until now.
void FaultSchedule::wake_at_former_host() {
  constexpr int kHost = 0, kSleeper = 4;
  for (int i = 0; i < count(); ++i) start(i);
  pass(seconds(10));
  require(running_round() == count(), "the first round has not begun");
  for (int other = 1; other < kSleeper; ++other) Net::cut(kHost, other);
  pass_until(Net::now() + seconds(20),
             [&] { return !nodes_[kHost].round && !nodes_[kSleeper].round; });
  pass(seconds(3));  // the host steps down before it finds that this node is silent
  const auto wakes = Net::now() + seconds(60);
  nodes_[kSleeper].paused_until = wakes;
  pass(seconds(59));
  require(running_round() == count() - 2, "the others have not gone on");
  for (int other = 1; other < kSleeper; ++other) kill(other);
  nodes_[kHost].paused_until = wakes + milliseconds(300);
  pass(seconds(3));
  kill(kHost);
  pass(seconds(30));
  require(!nodes_[kSleeper].round, "a node goes on with a round that others have gone on from");
}

// The last round's host is cut off. The next one dies before it has begun a round: the node that
// followed it is one of two that are left.
void FaultSchedule::lose_host_before_its_round() {
  constexpr int kFirst = 0, kSecond = 1, kThird = 2;
  for (int i = 0; i < count(); ++i) start(i);
  pass(seconds(10));
  require(running_round() == count(), "the first round has not begun");
  Net::cut(kFirst, kSecond);
  Net::cut(kFirst, kThird);
  const bool taken = pass_until(Net::now() + seconds(30), [&] { return newest_host_ == kSecond; });
  require(taken, "the second node has not taken the place of the first");
  pass(milliseconds(500));
  require(!nodes_[kThird].round || nodes_[kThird].stops, "the next host has begun a round");
  kill(kSecond);
  pass(seconds(60));
  require(!nodes_[kThird].round, "one of two nodes that are left goes on alone");
  Net::heal_all();
  const bool well = pass_until(Net::now() + seconds(60), [&] { return running_round() == 2; });
  require(well, "the two nodes that are left form no job");
}

// All but one of the nodes that were to take part in a round are killed before it begins, one of
// them before it has heard of it. They return with their files.
void FaultSchedule::return_with_older_files() {
  constexpr std::size_t kKept = 1, kLate = 2;
  for (int i = 0; i < 3; ++i) start(i);
  pass(seconds(40));
  require(running_round() == 3, "the first round has not begun");
  start(3);
  const auto stopping = [this](std::size_t i) { return nodes_[i].stops.has_value(); };
  pass_until(Net::now() + seconds(20), [&] { return stopping(0) && stopping(1) && stopping(2); });
  nodes_[0].stops = nodes_[kLate].stops = Net::now() + milliseconds(500);
  nodes_[kKept].stops = Net::now();
  pass(milliseconds(200));
  nodes_[kKept].paused_until = Net::now() + seconds(2);  // the others wait until it joins
  pass(seconds(1));
  nodes_[kLate].paused_until = Net::now() + seconds(60);
  pass(milliseconds(1'500));
  require(running_round() == 0 && !nodes_[kKept].round, "a round has begun without a node");
  for (const int i : {0, 2, 3}) kill(i);
  for (const int i : {0, 2, 3}) start(i);
  const bool well = pass_until(Net::now() + seconds(60), [&] { return running_round() == 4; });
  require(well, "nodes that are back with older files form no job with the one that was there");
}

// The host at the endpoint is cut off, and the others of its round are lost one after the other:
// those that continue were spares. The host knows none of them, but they ask at its endpoint.
void FaultSchedule::hear_of_a_host_of_strangers() {
  constexpr int kFirst = 0;
  for (int i = 0; i < places(); ++i) start(i);
  pass(seconds(10));
  require(running_round() == places(), "the first round has not begun");
  for (int i = places(); i < count(); ++i) start(i);
  pass(seconds(10));
  for (int i = 1; i < count(); ++i) Net::cut(kFirst, i);
  for (int lost = 1; lost < places(); ++lost) {
    const int left = std::min(places(), count() - lost);
    const bool well = pass_until(Net::now() + seconds(60),
                                 [&] { return running_round() == left && !nodes_[kFirst].round; });
    require(well, "the others have not gone on");
    kill(lost);
  }
  pass(seconds(30));
  Net::heal_all();
  const int left = count() - places() + 1;
  const bool well = pass_until(Net::now() + seconds(60), [&] { return running_round() == left; });
  require(well, "a node without a host does not heed the one that asks at its endpoint");
}

}  // namespace ddp::test
