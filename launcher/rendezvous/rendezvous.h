// The interface by which nodes agree on a job's rounds: who takes part, where the workers meet, how
// to continue after a failure. There is one implementation for a single node, one for several.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/pace.h"
#include "launcher/base/run_result.h"
#include "launcher/base/states.h"
#include "launcher/base/worker.h"
#include "launcher/rendezvous/restart_policy.h"
#include "launcher/rendezvous/wire/control_messages.h"

namespace ddp::launch {

/// How a round ended on this node, when none of its workers is running any more.
using NodeEnd = Ended;

/// An instruction of the job to this node.
struct JobNews {
  enum class Kind {
    kStart,       // start the workers of `round`
    kStop,        // stop the workers, then report the end
    kRestart,     // the round is over; join the next one after verdict.delay
    kEnd,         // the job is over
    kNote,        // show `text`
    kStacks,      // another node asks for this one's stacks
    kAsksStatus,  // another node asks for this one's status
    kStatus,      // reply to ask_for_status(): `text` is the table of `node`
  };
  Kind kind = Kind::kStart;
  RendezvousInfo round{};
  int node = 0;              // Status
  bool leaving = false;      // Stop: workers elsewhere were preempted; ours are about to exit, too
  std::string text{};        // Stop, Restart: one line for the user; may be empty
  RestartVerdict verdict{};  // Restart, End: on the round that just ended
  std::vector<ProcessFailure> failures{};  // Restart, End: of all nodes, root cause first
  Outcome outcome = Outcome::kSucceeded;   // End
};

JobNews make_news(JobNews::Kind kind, std::string text);
/// Returns End with a cause other than a worker.
JobNews failed_end(const std::string& why);
/// Removes and returns the oldest item; nullopt if there is none.
std::optional<JobNews> take_oldest(std::deque<JobNews>& queue);
/// Judges the end of the workers of a node that decides on its own: Restart or End. Adds to
/// `tally`.
JobNews judge_own_end(const RestartRules& rules, RestartTally& tally,
                      std::vector<ProcessFailure> failures);

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  /// Connects to the other nodes, which wait for this one from then on.
  virtual void connect() {}
  /// Withdraws this node, which cannot take part: notifies the others of the reason; End follows.
  virtual void withdraw(const std::string& why) = 0;
  /// Declares this node ready for a round; Start follows. Throws LaunchError if it cannot take
  /// part.
  virtual void join() = 0;
  /// Reports that a worker of this node failed: the other nodes stop theirs.
  virtual void report_failure(const ProcessFailure& failure) = 0;
  /// Reports the end of this node's round; Restart or End follows.
  virtual void report_end(NodeEnd end) = 0;
  /// Leaves the job; the caller calls report_end() afterwards. signal 0: the guardian was killed.
  virtual void leave(int signal) = 0;

  /// Reports how fast this node's ranks work; without phases: unknown.
  virtual void report_pace(const NodePace& pace, Clock::time_point now) = 0;
  /// Asks the other nodes for their stacks: they get kStacks if they can be reached now.
  virtual void ask_for_stacks() {}
  /// Likewise for their status; kStatus follows from each that replies.
  virtual void ask_for_status() {}
  /// Replies to kAsksStatus.
  virtual void report_status(const NodeStatus&) {}
  /// Returns the rank that the others wait for; nullopt if unknown.
  virtual std::optional<Straggler> straggler() const = 0;
  /// Returns which other nodes' workers have all exited with 0 in this round; nullopt: none.
  virtual std::optional<PartlyDone> partly_done() const { return std::nullopt; }

  virtual bool has_news() const = 0;
  /// Returns the oldest news; nullopt if there is none.
  virtual std::optional<JobNews> take_news() = 0;
};

}  // namespace ddp::launch
