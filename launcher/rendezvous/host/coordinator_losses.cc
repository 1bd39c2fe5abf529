// When the host takes a node for lost: its connection was closed, or it has been silent for too
// long.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "launcher/base/text.h"
#include "launcher/rendezvous/host/coordinator.h"

namespace ddp::launch {

// The end of a connection does not mean the end of the node: it may reconnect, unless its machine
// refuses connections.
void Coordinator::lose_closed(int node, Clock::time_point now) {
  const auto found = connections_.find(node);
  if (found == connections_.end() || found->second.inquiry) return;
  Connection& connection = found->second;
  const ControlChannel& channel = *connection.channel;
  if (channel.state() != ControlChannel::State::kClosed) return;
  // This agent itself, which is not dead: it reconnects.
  if (connection.id == id_ && channel.peer_is_gone() && !over() && !connection.closing &&
      !membership_.is_leaving(node))
    return;
  if (connection.closing || connection.place.port == 0 || over() || membership_.is_leaving(node) ||
      !channel.peer_is_gone()) {
    const std::string why = channel.peer_is_gone() ? "its ddp-run is gone" : channel.problem();
    connections_.erase(found);
    return membership_.lost(node, why, now, /*certain=*/false);
  }
  connection.inquiry =
      std::make_unique<Inquiry>(std::vector<Place>{connection.place}, status(), token_, patience_);
  connection.watched = 0;
  ++asking_;
}

// What was read just after this process had been suspended may be old.
bool Coordinator::is_fresh(const Connection& connection) const {
  return Clock::now() - connection.spoke <= patience_ * 3 / 4 &&
         (connection.spoke > stalled_until_ + kOldWords || stalled_until_ == Clock::time_point{});
}

void Coordinator::ask_lost(Clock::time_point now) {
  if (asking_ == 0) return;
  std::vector<int> gone;
  for (auto& [node, connection] : connections_) {
    if (!connection.inquiry) continue;
    connection.inquiry->handle({});
    const auto& finding = connection.inquiry->findings().front();
    if (finding.found == Inquiry::Found::kAnswer) hear(finding.status);
    if (finding.gone || over()) gone.push_back(node);
  }
  for (const int node : gone) {
    const auto found = connections_.find(node);
    const bool fresh = is_fresh(found->second);
    connections_.erase(found);
    --asking_;
    membership_.lost(node, "its ddp-run is gone", now, fresh);
  }
}

void Coordinator::lose_silent(Clock::time_point now) {
  next_silence_.reset();
  std::vector<int> silent;
  for (const auto& [node, connection] : connections_) {
    if (now - connection.heard >= patience_) {
      silent.push_back(node);
    } else {
      expect_word(connection);
    }
  }
  const std::string why = fmt::format(
      "it has been silent for {} (--rdzv-conf=keep_alive_interval, keep_alive_max_attempt)",
      seconds_text(patience_));
  for (const int node : silent) {
    const auto found = connections_.find(node);
    found->second.channel->send(Refused{why});
    asking_ -= found->second.inquiry ? 1 : 0;
    connections_.erase(found);
    membership_.lost(node, why, now, /*certain=*/false);
  }
}

}  // namespace ddp::launch
