// A stop among ranks of which one is gone: who waits for it in a collective leaves.
//
// A stop is agreed on in a collective. A killed process closes its connections, and Gloo says so at
// once. A node that vanished (its link cut, its power gone, the whole of it frozen) closes nothing:
// its peers would wait until the launcher's grace is over. NCCL says nothing of either. A rank
// without peers can wait as long, for a kernel that never ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/collectives/sign_of_life.h"
#include "trainer/parallel/environment/dist_env.h"

namespace ddp::train {

/// Asks nobody anything before a stop signal has come. From then on, while this rank is in one and
/// the same CollectiveWait, it asks the others whether they still run. A rank that is only slow
/// (computes, saves, sends gradients over a slow link) answers: it is waited for as ever. Without
/// peers it is the device that this rank waits for: it has to come to a mark within
/// kDeviceSilence or five times the longest wait so far. Does not end the process itself: `leave`
/// does.
class PeerWatch {
 public:
  /// Long enough for a lost packet to be sent again (1 s) and for a machine that is busy; short
  /// beside the grace that launchers and schedulers give (30 s).
  static constexpr std::chrono::milliseconds kSilence{2000};
  static constexpr std::chrono::milliseconds kDeviceSilence{3000};

  /// Called on a thread of its own with the device given up (DeviceGivenUp) when `rank` has been
  /// silent for too long; this rank: its device. Ends the process.
  using Leave = std::function<void(int rank)>;

  /// All ranks together. Off where ranks cannot reach each other's addresses.
  PeerWatch(ProcessGroup& group, const DistEnv& env, Leave leave);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  bool on() const { return thread_.joinable(); }
  /// Work of this process that a leave lets end first, from construction to destruction. `wait`
  /// returns when it has; called on another thread.
  class FinishFirst {
   public:
    FinishFirst(PeerWatch& watch, std::function<void()> wait);
    ~FinishFirst();
    FinishFirst(const FinishFirst&) = delete;
    FinishFirst& operator=(const FinishFirst&) = delete;

   private:
    PeerWatch& watch_;
  };

 private:
  struct Peer {
    int rank = 0;
    std::string address;
    uint16_t port = 0;
  };
  bool reachable(ProcessGroup& group, const DistEnv& env) const;
  bool still_waiting() const;
  void look();
  void look_at_peers(uint64_t wait);
  void look_at_device(uint64_t wait);
  void leave(int rank);
  void finish_work();

  Leave leave_;
  LifeSign own_;
  EndEvent end_;
  std::vector<Peer> peers_;
  int rank_;
  uint64_t judged_wait_ = 0;
  std::chrono::milliseconds waited_{0};  // of looks: a stopped process has not waited
  std::chrono::milliseconds longest_wait_{0};
  std::mutex mutex_;
  std::function<void()> finish_;
  std::thread thread_;
};

}  // namespace ddp::train
