// Lets a rank leave a collective during a stop if a peer no longer responds.
//
// A stop is agreed on in a collective. A killed process closes its connections, which Gloo reports
// at once. A node that vanishes (link cut, power lost, frozen) closes nothing: its peers would wait
// until the launcher's grace period is over. NCCL reports neither case. A rank without peers can
// wait as long, for a kernel that never ends.
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

/// Idle until a stop signal arrives. From then on, as long as this rank stays in the
/// same CollectiveWait, it probes the other ranks. A rank that is merely slow
/// (computing, saving, sending gradients over a slow link) replies and is waited for
/// as usual. A rank without peers waits for its device, which has to reach a mark
/// within kDeviceSilence or five times the longest wait so far. `leave` must end the
/// process.
class PeerWatch {
 public:
  /// Long enough for a retransmitted packet (1 s) and for a busy machine; short compared to the
  /// grace period of launchers and schedulers (30 s).
  static constexpr std::chrono::milliseconds kSilence{2000};
  static constexpr std::chrono::milliseconds kDeviceSilence{3000};

  /// Called on a separate thread with the device given up (DeviceGivenUp) once `rank` has been
  /// silent for too long; this rank itself stands for its device. Ends the process.
  using Leave = std::function<void(int rank)>;

  /// A collective. Inactive if ranks cannot reach each other's addresses.
  PeerWatch(ProcessGroup& group, const DistEnv& env, Leave leave);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  bool on() const { return thread_.joinable(); }
  /// Registers work that must finish before this process leaves, from construction to destruction.
  /// `wait` blocks until it has; called on another thread.
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
  std::chrono::milliseconds waited_{0};  // in polls: a stopped process has not waited
  std::chrono::milliseconds longest_wait_{0};
  std::mutex mutex_;
  std::function<void()> finish_;
  std::thread thread_;
};

}  // namespace ddp::train
