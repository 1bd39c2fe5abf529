#include "trainer/parallel/mesh/peer_watch.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "trainer/parallel/device/collective_wait.h"
#include "trainer/parallel/device/device_wait.h"
#include "trainer/runtime/process/stop_signal.h"

namespace ddp::train {
namespace {

constexpr std::chrono::milliseconds kBetweenPeerLooks{100};
constexpr std::chrono::milliseconds kFirstAnswer{5000};  // while everything starts

/// "10.0.0.1 4711"
std::string as_text(const std::string& address, uint16_t port) {
  return address + " " + std::to_string(port);
}

}  // namespace

PeerWatch::PeerWatch(ProcessGroup& group, const DistEnv& env, Leave leave)
    : leave_(std::move(leave)), own_(group.size() > 1 ? group.address() : ""), rank_(group.rank()) {
  if (group.size() == 1) {
    if (end_.fd() >= 0) thread_ = std::thread([this] { look(); });
    return;
  }
  const auto texts = group.gather_texts(as_text(group.address(), own_.port()));
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::string& text = texts[static_cast<std::size_t>(rank)];
    const auto space = text.find(' ');
    Peer peer{rank, text.substr(0, space), 0};
    std::from_chars(text.data() + space + 1, text.data() + text.size(), peer.port);
    peers_.push_back(std::move(peer));
  }
  if (reachable(group, env)) thread_ = std::thread([this] { look(); });
}

PeerWatch::~PeerWatch() {
  end_.raise();
  if (thread_.joinable()) thread_.join();
}

// Each asks one other, of the next node where there are several: a firewall in between must not
// make living ranks look gone.
bool PeerWatch::reachable(ProcessGroup& group, const DistEnv& env) const {
  const int distance = env.single_node() ? 1 : env.local_world_size;
  const auto& other = peers_[static_cast<std::size_t>((group.rank() + distance) % group.size())];
  const bool known = other.port != 0 && end_.fd() >= 0 &&
                     gives_sign_of_life(other.address, other.port, kFirstAnswer, end_);
  for (const double answered : group.gather_doubles(known ? 1.0 : 0.0)) {
    if (answered == 0.0) return false;
  }
  return true;
}

bool PeerWatch::still_waiting() const { return CollectiveWait::current() == judged_wait_; }

void PeerWatch::look() {
  while (!end_.wait_for(kBetweenPeerLooks)) {
    const uint64_t wait = CollectiveWait::current();
    if (peers_.empty()) {
      look_at_device(wait);
    } else if (StopSignal::pending() != 0 && wait != 0) {
      look_at_peers(wait);
    }
  }
}

// Before the signal as well: how long a step of this run takes is only seen then.
void PeerWatch::look_at_device(uint64_t wait) {
  constexpr int kSteps = 5;
  if (wait == 0 || !still_waiting()) {
    longest_wait_ = std::max(longest_wait_, waited_);
    waited_ = {};
    judged_wait_ = wait;
    return;
  }
  waited_ += kBetweenPeerLooks;
  if (StopSignal::pending() != 0 && waited_ > std::max(kDeviceSilence, kSteps * longest_wait_))
    leave(rank_);
}

void PeerWatch::look_at_peers(uint64_t wait) {
  judged_wait_ = wait;
  for (const Peer& peer : peers_) {
    if (!still_waiting()) return;
    if (peer.rank == rank_) continue;
    if (gives_sign_of_life(peer.address, peer.port, kSilence, end_)) continue;
    if (end_.wait_for({}) || !still_waiting()) return;
    leave(peer.rank);
    return;
  }
}

void PeerWatch::leave(int rank) {
  // A copy of the state queued after the silent rank's part would never end.
  const DeviceGivenUp given_up;
  finish_work();
  if (still_waiting()) leave_(rank);
}

void PeerWatch::finish_work() {
  const std::lock_guard lock(mutex_);
  if (finish_) finish_();
}

PeerWatch::FinishFirst::FinishFirst(PeerWatch& watch, std::function<void()> wait) : watch_(watch) {
  const std::lock_guard lock(watch_.mutex_);
  watch_.finish_ = std::move(wait);
}

PeerWatch::FinishFirst::~FinishFirst() {
  const std::lock_guard lock(watch_.mutex_);
  watch_.finish_ = nullptr;
}

}  // namespace ddp::train
