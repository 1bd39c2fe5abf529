// How the nodes of a job agree on its rounds: who takes part, where the workers meet, and what
// becomes of the job after a failure. One implementation for a single node, one for several.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/run_result.h"
#include "launcher/base/states.h"
#include "launcher/base/worker.h"
#include "launcher/rendezvous/restart_policy.h"

namespace ddp::launch {

/// How a round ended on this node: none of its workers runs any more.
struct NodeEnd {
  std::vector<ProcessFailure> failures{};  // cause first; empty: they succeeded, or were stopped
  bool stopped = false;                    // not all of them had ended by themselves
  bool preempted = false;                  // all of them had saved their state or finished
};

/// What the job asks of this node.
struct JobNews {
  enum class Kind {
    Start,    // start the workers of `round`
    Stop,     // stop the workers; then report the end
    Restart,  // the round is over; join the next one after verdict.delay
    End,      // the job is over
    Note,     // show `text`
  };
  Kind kind = Kind::Start;
  RendezvousInfo round{};
  bool leaving = false;  // Stop: workers elsewhere were preempted; those here are about to leave
  std::string text{};    // Stop, Restart: one line for the user; may be empty
  RestartVerdict verdict{};                // Restart, End: on the round that has just ended
  std::vector<ProcessFailure> failures{};  // Restart, End: of all nodes, root cause first
  Outcome outcome = Outcome::Succeeded;    // End
};

JobNews make_news(JobNews::Kind kind, std::string text);
/// The oldest of the queue, which loses it; nullopt: none.
std::optional<JobNews> take_oldest(std::deque<JobNews>& queue);
/// What a node that decides for itself makes of its workers' end, Restart or End: adds to
/// `history`.
JobNews judge_own_end(const RestartRules& rules, std::vector<RoundEnd>& history,
                      std::vector<ProcessFailure> failures);

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  /// This node is ready for a round: Start follows. Throws LaunchError if it cannot take part.
  virtual void join() = 0;
  /// A worker of this node has failed: the other nodes stop theirs.
  virtual void report_failure(const ProcessFailure& failure) = 0;
  /// Restart or End follows.
  virtual void report_end(NodeEnd end) = 0;
  /// This node leaves the job; report_end() follows. signal 0: its launcher was killed.
  virtual void leave(int signal) = 0;

  virtual bool has_news() const = 0;
  /// The oldest; nullopt: none.
  virtual std::optional<JobNews> take_news() = 0;
};

}  // namespace ddp::launch
