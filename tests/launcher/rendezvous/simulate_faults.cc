// The nodes of one elastic job in this process, with the real rendezvous of ddp-run and without
// workers, under random faults: cut and reset connections, pauses, kills, returns. In half of the
// schedules there are several endpoints, in half of them nodes that return have their file of
// members, and in a fifth of them there are more nodes than places. The same seed makes the same
// faults. Ends with 1 if a schedule breaks a rule:
//   - at most one round of the job runs at a time, with a greater epoch than all that ran before
//   - once nothing fails any more, all nodes that are left, but for spares, form one job again
//   - no node ends as if the job had succeeded before all workers of one round have
//   - no node changes its stage as GroupStage does not allow
//   - a node that waits sleeps: it does not ask again and again to be woken at a time that has
//   passed
// The nodes' sockets are in a network namespace of this process, where that is permitted.
//   simulate_faults [--schedules=N] [--seconds=N] [--seed=N] [--nodes=N] [--endpoints=N]
//                   [--files=0|1] [--spares=N] [--lost-rack] [--found] [--verbose]
// --seconds: begins no further schedule after so long. --lost-rack: 130 nodes, of which half of the
// first ones are lost at once, the host among them, silently and by being killed. --found: the
// schedules that have found a defect.
#include <fmt/format.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "launcher/base/errors.h"
#include "launcher/rendezvous/group_rendezvous.h"
#include "tests/launcher/rendezvous/simulated_network.h"
#include "tests/support/temp_folder.h"

namespace ddp::test {
namespace {

using namespace launch;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Net = SimulatedNetwork;

struct Options {
  int schedules = 100;
  unsigned long seed = 1;
  int nodes = 0;  // 0: 2 to 6
  int min_nodes = 0;
  int endpoints = 0;  // 0: 1 to 3
  int files = -1;     // -1: in every second schedule
  int spares = -1;    // -1: one or two in every fifth schedule
  int returns = -1;   // whether all nodes return at the end; -1: in every second schedule
  int seconds = 0;    // 0: as long as it takes
  bool lost_rack = false;
  bool found = false;
  bool verbose = false;
};

constexpr int kMostHurried = 100;

struct Found {
  unsigned long seed;
  int nodes = 0;  // as in Options
  int spares = 0;
  int returns = 0;
};

constexpr std::array kFound{
    Found{8},        // a node that was held by the next host did not sleep
    Found{32},       // nor did a host that waited for more nodes
    Found{401'347},  // a node reconnected to its host, which had stepped down and waited for it
    Found{402'910},  // the same with more nodes
    Found{402'351},  // a host stepped down again and again: a node had accepted a round of nobody
    Found{403'120},  // a node that was to join while it reconnected did not
    // A host went on from a round that it alone had accepted, the others from the one before.
    Found{9'000'130, 4, 1},
    // A host that went on alone, and was started anew, waited for one that waited for it.
    Found{20'000'136, 0, 0, 1},
    Found{20'000'262, 0, 0, 1},
    Found{20'000'268, 0, 0, 1},
    Found{20'000'555, 0, 0, 1},
    // The only place was its host's, which had had no part in the last round.
    Found{21'001'269, 0, -1, 1},
};

struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// ---- one node ---------------------------------------------------------------------------------

struct Node {
  std::unique_ptr<GroupRendezvous> rendezvous{};
  int life = 0;  // how often it was started
  Clock::time_point paused_until{};
  std::optional<RendezvousInfo> round{};  // its workers run
  std::optional<Clock::time_point> stops{};
  std::optional<Clock::time_point> joins{};
  bool over = false;
  bool has_run = false;
  bool waits_for_news() const { return rendezvous && !over; }
};

std::string key_of(const RendezvousInfo& round) {
  return fmt::format("round {} of epoch {:x} at {}:{}", round.restart_count, round.epoch,
                     round.master_addr, round.master_port);
}

// ---- a job and its faults ---------------------------------------------------------------------

class Schedule {
 public:
  Schedule(const Options& options, unsigned long seed)
      : random_(seed), verbose_(options.verbose), seed_(seed) {
    const int count = options.nodes > 0 ? options.nodes : number(2, 6);
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
  ~Schedule() {
    Net::heal_all();
    for (int i = 0; i < count(); ++i) kill(i);
  }
  Schedule(const Schedule&) = delete;

  void run() {
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
  // The nodes after the first ones go on within seconds.
  void lose_rack(bool silently) {
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
    require(well && took < seconds(30), "a lost rack takes too long");
  }
  // A node sleeps while its host is cut off and steps down, and while the others go on and end. The
  // host's answer after that is no sign that the others have been with it until now.
  void wake_at_former_host() {
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
  void lose_host_before_its_round() {
    constexpr int kFirst = 0, kSecond = 1, kThird = 2;
    for (int i = 0; i < count(); ++i) start(i);
    pass(seconds(10));
    require(running_round() == count(), "the first round has not begun");
    Net::cut(kFirst, kSecond);
    Net::cut(kFirst, kThird);
    const bool taken =
        pass_until(Net::now() + seconds(30), [&] { return newest_host_ == kSecond; });
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
  /// Whether the nodes that were left formed a job.
  bool went_on() const { return went_on_; }

 private:
  int count() const { return static_cast<int>(nodes_.size()); }
  int number(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  int places() const { return count() - spares_; }
  int any_node() { return number(0, count() - 1); }
  void say(const std::string& text) const {
    if (verbose_) {
      const auto at = std::chrono::duration<double>(Net::now().time_since_epoch()).count() - 3600;
      fmt::print("{:9.3f} {}\n", at - began_, text);
    }
  }
  void require(bool condition, const std::string& what) const {
    if (!condition) throw Broken(what + "; " + describe());
  }
  std::string describe() const {
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

  void start(int i) {
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

  void kill(int i) {
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
  template <typename Action>
  void ask(int i, const Action& action) {
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

  void pass(milliseconds time) {
    pass_until(Net::now() + time, [] { return false; });
  }

  template <typename Done>
  bool pass_until(Clock::time_point end, const Done& done) {
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

  Clock::time_point next_deadline() const {
    auto next = Clock::time_point::max();
    for (const Node& node : nodes_) {
      if (!node.waits_for_news()) continue;
      auto own = node.rendezvous->deadline().value_or(Clock::time_point::max());
      own = std::min({own, node.stops.value_or(own), node.joins.value_or(own)});
      next = std::min(next, std::max(own, node.paused_until));
    }
    return next;
  }

  void serve(int i) {
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

  void act_on_news(int i) {
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

  void act_on(int i, const JobNews& news) {
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
      case JobNews::Kind::kNote:
        say(fmt::format("node {}: {}", i, news.text));
        require(news.text.find("a defect of ddp-run") == std::string::npos, news.text);
        if (news.text.starts_with("this node hosts")) newest_host_ = i;
        return;
    }
  }

  // ---- rules ----

  // A node without a file is known to nobody, and knows nobody: docs/multi-node.md has the limits.
  void start_anew(int i) {
    if (!files_) {
      Net::heal_all();
      for (Node& node : nodes_) node.paused_until = {};
    }
    start(i);
  }

  // Of one that runs: workers that miss a peer, or are told to stop, do not make progress.
  bool runs(const RendezvousInfo& round) const {
    int present = 0;
    for (const Node& node : nodes_) {
      const bool well = node.rendezvous && !node.stops && Net::now() >= node.paused_until;
      present += well && node.round && key_of(*node.round) == key_of(round) ? 1 : 0;
    }
    return present == round.group_world_size;
  }

  // The nodes of the round that runs; 0: none does.
  int running_round() const {
    for (const Node& node : nodes_) {
      if (node.round && runs(*node.round)) return node.round->group_world_size;
    }
    return 0;
  }

  // The last job has ended, and nobody is left who knows its epochs.
  bool begins_anew() const {
    return !files_ && std::none_of(nodes_.begin(), nodes_.end(), [](const Node& node) {
      return node.waits_for_news() && node.has_run;
    });
  }

  void check_rounds() {
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

  int alive() const {
    return static_cast<int>(std::count_if(nodes_.begin(), nodes_.end(),
                                          [](const Node& node) { return node.waits_for_news(); }));
  }

  void settle() {
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
  void reunite() {
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
  void finish() {
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

  // ---- faults ----

  void fail() {
    const int a = any_node();
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

  void partition() {
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

  std::mt19937_64 random_;
  bool verbose_;
  unsigned long seed_;
  double began_ = std::chrono::duration<double>(Net::now().time_since_epoch()).count() - 3600;
  std::vector<Node> nodes_;
  int min_nodes_ = 1;
  int port_ = 0;
  std::set<std::string> ran_;
  long long newest_ = -1;
  bool went_on_ = false;
  bool finishing_ = false;
  int spares_ = 0;
  int newest_host_ = -1;
  int hurried_ = 0;  // wake-ups in a row that were due at once
  int endpoints_ = 1;
  bool files_ = false;
  bool returns_ = false;
  TempFolder folder_;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&] { return std::stoul(arg.substr(arg.find('=') + 1)); };
    if (arg.starts_with("--schedules="))
      options.schedules = static_cast<int>(value());
    else if (arg.starts_with("--seed="))
      options.seed = value();
    else if (arg.starts_with("--nodes="))
      options.nodes = static_cast<int>(value());
    else if (arg.starts_with("--min-nodes="))
      options.min_nodes = static_cast<int>(value());
    else if (arg.starts_with("--endpoints="))
      options.endpoints = static_cast<int>(value());
    else if (arg.starts_with("--files="))
      options.files = static_cast<int>(value());
    else if (arg.starts_with("--spares="))
      options.spares = static_cast<int>(value());
    else if (arg.starts_with("--returns="))
      options.returns = static_cast<int>(value());
    else if (arg.starts_with("--seconds="))
      options.seconds = static_cast<int>(value());
    else if (arg == "--lost-rack")
      options.lost_rack = true;
    else if (arg == "--found")
      options.found = true;
    else if (arg == "--verbose")
      options.verbose = true;
    else
      throw std::runtime_error("unknown option " + arg);
  }
  return options;
}

// What would make each schedule slower than the last: ports of closed connections are kept for 60
// s.
void forget_closed_connections() { std::ofstream("/proc/sys/net/ipv4/tcp_max_tw_buckets") << 0; }

// The nodes' files are synced, for which a disk needs milliseconds.
void keep_files_in_memory() {
  if (::access("/dev/shm", W_OK | X_OK) == 0) ::setenv("TMPDIR", "/dev/shm", /*overwrite=*/1);
}

// Another program may listen at any port of the machine's loopback.
void enter_own_network() {
  if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    fmt::print("on this machine's loopback: {}\n", error_text(errno));
    return;
  }
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP | IFF_RUNNING;
  const bool up = ::ioctl(fd, SIOCSIFFLAGS, &loopback) == 0;
  const std::string why = error_text(errno);
  ::close(fd);
  if (!up) throw std::runtime_error("cannot set up the loopback: " + why);
  forget_closed_connections();
}

int lose_racks(Options options) {
  options.nodes = options.nodes > 0 ? options.nodes : 130;
  options.min_nodes = 1;
  try {
    for (const bool silently : {true, false})
      Schedule(options, options.seed + (silently ? 0 : 1)).lose_rack(silently);
    return 0;
  } catch (const Broken& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

int simulate(const Options& options) {
  int broken = 0, without_job = 0, i = 0;
  timespec began{}, now{};  // the machine's time, not the nodes'
  ::clock_gettime(CLOCK_MONOTONIC, &began);
  for (; i < options.schedules; ++i) {
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    if (options.seconds > 0 && now.tv_sec - began.tv_sec >= options.seconds) break;
    const unsigned long seed = options.seed + static_cast<unsigned long>(i);
    try {
      Schedule schedule(options, seed);
      schedule.run();
      without_job += schedule.went_on() ? 0 : 1;
    } catch (const Broken& error) {
      ++broken;
      fmt::print(stderr, "--seed={}: {}\n", seed, error.what());
    }
  }
  fmt::print(
      "{} of {} schedules broke a rule; {} ended because nodes that were needed did not "
      "return\n",
      broken, i, without_job);
  return broken == 0 ? 0 : 1;
}

int repeat_found(Options options) {
  options.schedules = 1;
  int broken = 0;
  for (const Found& found : kFound) {
    options.seed = found.seed;
    options.nodes = found.nodes;
    options.spares = found.spares;
    options.returns = found.returns;
    options.files = found.returns == 1 ? 1 : -1;
    broken += simulate(options);
  }
  options.nodes = 5;
  options.min_nodes = options.endpoints = 1;
  options.files = options.spares = options.returns = 0;
  try {
    Schedule(options, 1).wake_at_former_host();
    options.nodes = 3;
    Schedule(options, 1).lose_host_before_its_round();
  } catch (const Broken& error) {
    ++broken;
    fmt::print(stderr, "{}\n", error.what());
  }
  return broken == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ddp::test

int main(int argc, char** argv) {
  try {
    const auto options = ddp::test::parse(argc, argv);
    ddp::test::enter_own_network();
    ddp::test::keep_files_in_memory();
    if (options.lost_rack) return ddp::test::lose_racks(options);
    return options.found ? ddp::test::repeat_found(options) : ddp::test::simulate(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "simulate_faults: {}\n", error.what());
    return 1;
  }
}
