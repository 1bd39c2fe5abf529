// The nodes of one elastic job in this process, with the real rendezvous of ddp-run and without
// workers, and the faults of one schedule, which its seed determines. Throws BrokenRule once a rule
// of simulate_faults.cc is broken. One at a time: time and network are SimulatedNetwork's.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "launcher/rendezvous/group_rendezvous.h"
#include "tests/launcher/rendezvous/simulated_network.h"
#include "tests/support/temp_folder.h"

namespace ddp::test {

struct ScheduleOptions {
  int nodes = 0;  // 0: drawn
  int least_nodes = 2, most_nodes = 6;
  int min_nodes = 0;
  int endpoints = 0;  // 0: 1 to 3
  int files = -1;     // -1: in every second schedule
  int spares = -1;    // -1: one or two in every fifth schedule
  int returns = -1;   // whether all nodes return at the end; -1: in every second schedule
  bool verbose = false;
};

struct BrokenRule : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class FaultSchedule {
 public:
  FaultSchedule(const ScheduleOptions& options, unsigned long seed);
  ~FaultSchedule();
  FaultSchedule(const FaultSchedule&) = delete;
  FaultSchedule& operator=(const FaultSchedule&) = delete;

  // What happens, in fault_scenarios.cc.

  /// Random faults.
  void run();
  /// The first nodes are lost at once, the host among them: the others continue within seconds.
  void lose_rack(bool silently);
  void wake_at_former_host();
  void lose_host_before_its_round();
  void return_with_older_files();
  void hear_of_a_host_of_strangers();
  /// After run(): whether the nodes that were left formed a job.
  bool went_on() const { return went_on_; }

 private:
  struct Node {
    std::unique_ptr<launch::GroupRendezvous> rendezvous{};
    int life = 0;  // how often it was started
    launch::Clock::time_point paused_until{};
    std::optional<launch::RendezvousInfo> round{};  // its workers run
    std::optional<launch::Clock::time_point> stops{};
    std::optional<launch::Clock::time_point> joins{};
    bool over = false;
    bool has_run = false;
    bool waits_for_news() const { return rendezvous && !over; }
  };

  int count() const { return static_cast<int>(nodes_.size()); }
  int number(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  int places() const { return count() - spares_; }
  void say(const std::string& text) const;
  void require(bool condition, const std::string& what) const;
  std::string describe() const;

  void start(int i);
  void kill(int i);
  void ask(int i, const std::function<void()>& action);
  void pass(std::chrono::milliseconds time);
  /// Returns whether it was `done` before `end`.
  bool pass_until(launch::Clock::time_point end, const std::function<bool()>& done);
  launch::Clock::time_point next_deadline() const;
  void serve(int i);
  void act_on_news(int i);
  void act_on(int i, const launch::JobNews& news);

  bool runs(const launch::RendezvousInfo& round) const;
  int running_round() const;
  bool begins_anew() const;
  void check_rounds();
  int alive() const;

  void fail();
  void partition();
  void start_anew(int i);
  void settle();
  void reunite();
  void finish();

  std::mt19937_64 random_;
  bool verbose_;
  double began_;
  std::vector<Node> nodes_{};
  int min_nodes_ = 1;
  int port_ = 0;
  std::set<std::string> ran_{};
  long long newest_ = -1;
  bool went_on_ = false;
  bool finishing_ = false;
  int spares_ = 0;
  int newest_host_ = -1;
  int hurried_ = 0;  // wake-ups in a row that were due at once
  int endpoints_ = 1;
  bool files_ = false;
  bool returns_ = false;
  TempFolder folder_{};
};

}  // namespace ddp::test
