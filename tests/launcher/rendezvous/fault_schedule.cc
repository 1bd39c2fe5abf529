#include "tests/launcher/rendezvous/fault_schedule.h"

#include <fmt/format.h>
#include <poll.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "launcher/base/errors.h"

namespace ddp::test {
namespace {

using namespace launch;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Net = SimulatedNetwork;

constexpr int kMostHurried = 100;

std::string key_of(const RendezvousInfo& round) {
  return fmt::format("round {} of epoch {:x} at {}:{}", round.restart_count, round.epoch,
                     round.master_addr, round.master_port);
}

}  // namespace

FaultSchedule::FaultSchedule(const ScheduleOptions& options, unsigned long seed)
    : random_(seed),
      verbose_(options.verbose),
      began_(std::chrono::duration<double>(Net::now().time_since_epoch()).count() - 3600) {
  Net::seed(seed);
  const int count =
      options.nodes > 0 ? options.nodes : number(options.least_nodes, options.most_nodes);
  nodes_.resize(static_cast<std::size_t>(count));
  min_nodes_ = options.min_nodes > 0 ? options.min_nodes : number(1, std::max(1, count / 2));
  const int most = number(0, 1) == 0 ? 1 : std::min(3, count);
  endpoints_ = options.endpoints > 0 ? options.endpoints : number(1, most);
  files_ = options.files >= 0 ? options.files == 1 : number(0, 1) == 1;
  spares_ = options.spares >= 0 ? options.spares
            : seed % 5 == 4     ? 1 + static_cast<int>(seed % 2)
                                : 0;
  spares_ = std::clamp(spares_, 0, count - 1);
  min_nodes_ = std::min(min_nodes_, count - spares_);
  returns_ = files_ && (options.returns >= 0 ? options.returns == 1 : seed % 2 == 0);
  port_ = 20'000 + static_cast<int>(seed % 20'000);
}

FaultSchedule::~FaultSchedule() {
  Net::heal_all();
  for (int i = 0; i < count(); ++i) kill(i);
}

void FaultSchedule::say(const std::string& text) const {
  if (verbose_) {
    const auto at = std::chrono::duration<double>(Net::now().time_since_epoch()).count() - 3600;
    fmt::print("{:9.3f} {}\n", at - began_, text);
  }
}

void FaultSchedule::require(bool condition, const std::string& what) const {
  if (!condition) throw BrokenRule(what + "; " + describe());
}

std::string FaultSchedule::describe() const {
  std::string text;
  for (int i = 0; i < count(); ++i) {
    const Node& node = nodes_[static_cast<std::size_t>(i)];
    text += fmt::format(" [{}: {}]", i,
                        !node.rendezvous ? "dead"
                        : node.over      ? "over"
                        : node.round     ? key_of(*node.round)
                                         : "no round");
  }
  return text;
}

void FaultSchedule::start(int i) {
  Node& node = nodes_[static_cast<std::size_t>(i)];
  Net::revive(i);
  Net::act_as(i);
  GroupSettings settings;
  settings.rules = {.run_id = "job", .min_nodes = min_nodes_, .max_nodes = places()};
  settings.rules.restarts.max_restarts = 1000;
  settings.rules.restarts.quick = {};  // no delays: each life is short here
  settings.host = Net::address_of(0);
  settings.port = port_;
  for (int one = 1; one < endpoints_; ++one)
    settings.more_endpoints.push_back({Net::address_of(one), port_});
  if (files_) settings.members_file = folder_ / fmt::format("node{}", i);
  settings.host_name = fmt::format("node{}", i);
  settings.local_addr = "";
  node = Node{.rendezvous = std::make_unique<GroupRendezvous>(settings), .life = node.life + 1};
  say(fmt::format("node {} starts", i));
  ask(i, [&] { node.rendezvous->join(); });
}

void FaultSchedule::kill(int i) {
  Node& node = nodes_[static_cast<std::size_t>(i)];
  Net::act_as(i);
  Net::kill(i);
  const auto now = Net::now();
  node.rendezvous.reset();
  Net::turn_back_to(now);
  node.round.reset();
  node.paused_until = {};
}

// Acts as the node; one that cannot take part any more ends, as its ddp-run would.
void FaultSchedule::ask(int i, const std::function<void()>& action) {
  Node& node = nodes_[static_cast<std::size_t>(i)];
  Net::act_as(i);
  try {
    action();
  } catch (const LaunchError& error) {
    say(fmt::format("node {} ends: {}", i, error.what()));
    node.over = true;
  }
  if (node.over && node.rendezvous) {
    const auto now = Net::now();
    node.rendezvous.reset();
    Net::turn_back_to(now);
    node.round.reset();
  }
}

// ---- the agents' loops ----

void FaultSchedule::pass(milliseconds time) {
  pass_until(Net::now() + time, [] { return false; });
}

bool FaultSchedule::pass_until(Clock::time_point end, const std::function<bool()>& done) {
  while (!done()) {
    int sweeps = 0;
    do {
      for (int i = 0; i < count(); ++i) serve(i);
      require(++sweeps < 5'000, "the nodes are busy for ever");
    } while (Net::take_progress());
    if (done()) return true;
    const auto next = next_deadline();
    hurried_ = next < Net::now() + milliseconds(1) ? hurried_ + 1 : 0;
    require(hurried_ < kMostHurried, "a node that waits does not sleep");
    if (next >= end) {
      Net::advance_to(end);
      return false;
    }
    Net::advance_to(std::max(next, Net::now() + milliseconds(1)));
  }
  return true;
}

Clock::time_point FaultSchedule::next_deadline() const {
  auto next = Clock::time_point::max();
  for (const Node& node : nodes_) {
    if (!node.waits_for_news()) continue;
    auto own = node.rendezvous->deadline().value_or(Clock::time_point::max());
    own = std::min({own, node.stops.value_or(own), node.joins.value_or(own)});
    next = std::min(next, std::max(own, node.paused_until));
  }
  return next;
}

void FaultSchedule::serve(int i) {
  Node& node = nodes_[static_cast<std::size_t>(i)];
  if (!node.waits_for_news() || Net::now() < node.paused_until) return;
  ask(i, [&] {
    std::vector<pollfd> fds;
    node.rendezvous->add_poll_fds(fds);
    const timespec at_once{};
    ::ppoll(fds.data(), static_cast<nfds_t>(fds.size()), &at_once, nullptr);
    node.rendezvous->handle(fds);
    act_on_news(i);
  });
}

void FaultSchedule::act_on_news(int i) {
  Node& node = nodes_[static_cast<std::size_t>(i)];
  while (const auto news = node.rendezvous->take_news()) act_on(i, *news);
  const auto now = Net::now();
  if (node.stops && now >= *node.stops) {
    node.stops.reset();
    node.round.reset();
    node.rendezvous->report_end({.stopped = true});
  }
  if (node.joins && now >= *node.joins) {
    node.joins.reset();
    node.rendezvous->join();
  }
}

void FaultSchedule::act_on(int i, const JobNews& news) {
  Node& node = nodes_[static_cast<std::size_t>(i)];
  switch (news.kind) {
    case JobNews::Kind::kStart:
      say(fmt::format("node {} starts {} of {}", i, key_of(news.round),
                      news.round.group_world_size));
      require(!node.round, fmt::format("node {} is to start two rounds", i));
      node.round = news.round;
      node.stops.reset();
      check_rounds();
      return;
    case JobNews::Kind::kStop:
      say(fmt::format("node {} stops: {}", i, news.text));
      if (node.round && !node.stops) node.stops = Net::now() + milliseconds(number(0, 3'000));
      return;
    case JobNews::Kind::kRestart:
      say(fmt::format("node {} joins again: {}", i, news.text));
      node.joins = Net::now() + news.verdict.delay;
      return;
    case JobNews::Kind::kEnd:
      require(news.outcome != Outcome::kSucceeded || finishing_,
              fmt::format("node {} ends well before the job has", i));
      say(fmt::format("node {} is over: {}", i,
                      news.failures.empty() ? news.text : news.failures.front().cause));
      node.over = true;
      return;
    case JobNews::Kind::kStacks:
    case JobNews::Kind::kAsksStatus:
    case JobNews::Kind::kStatus:
      return;
    case JobNews::Kind::kNote:
      say(fmt::format("node {}: {}", i, news.text));
      require(news.text.find("a defect of ddp-run") == std::string::npos, news.text);
      if (news.text.starts_with("this node hosts")) newest_host_ = i;
      return;
  }
}

// ---- rules ----

// Whether the round makes progress: workers that miss a peer, or are asked to stop, do not.
bool FaultSchedule::runs(const RendezvousInfo& round) const {
  int present = 0;
  for (const Node& node : nodes_) {
    const bool well = node.rendezvous && !node.stops && Net::now() >= node.paused_until;
    present += well && node.round && key_of(*node.round) == key_of(round) ? 1 : 0;
  }
  return present == round.group_world_size;
}

// The nodes of the round that runs; 0: none does.
int FaultSchedule::running_round() const {
  for (const Node& node : nodes_) {
    if (node.round && runs(*node.round)) return node.round->group_world_size;
  }
  return 0;
}

// The last job has ended, and nobody is left who knows its epochs.
bool FaultSchedule::begins_anew() const {
  return !files_ && std::none_of(nodes_.begin(), nodes_.end(), [](const Node& node) {
    return node.waits_for_news() && node.has_run;
  });
}

void FaultSchedule::check_rounds() {
  if (begins_anew()) newest_ = -1;
  std::set<std::string> running;
  for (const Node& node : nodes_) {
    if (!node.round || !runs(*node.round)) continue;
    if (running.insert(key_of(*node.round)).second && ran_.insert(key_of(*node.round)).second) {
      require(node.round->epoch > newest_,
              fmt::format("{} begins after epoch {:x}", key_of(*node.round), newest_));
      newest_ = node.round->epoch;
      for (Node& one : nodes_) one.has_run = one.has_run || one.round.has_value();
    }
  }
  require(running.size() <= 1, "two rounds run at the same time");
}

int FaultSchedule::alive() const {
  return static_cast<int>(std::count_if(nodes_.begin(), nodes_.end(),
                                        [](const Node& node) { return node.waits_for_news(); }));
}

}  // namespace ddp::test
