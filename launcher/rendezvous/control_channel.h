// A connection between the agents of two nodes: a handshake that proves to each end that the other
// knows the job's token, then frames of at most 1 MiB. Never blocks.
//
//   agent -> host   "DDP-RUN1" and a nonce of 16 bytes
//   host -> agent   a nonce of 16 bytes and HMAC-SHA256(token, "host" and both nonces)
//   agent -> host   HMAC-SHA256(token, "agent" and both nonces)
//   both            frames: a length of 4 bytes, big-endian, and as many bytes of JSON
//
// Nothing else is read before the proof. Frames are neither encrypted nor authenticated.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/rendezvous/control_messages.h"

namespace ddp::launch {

/// Who connects to the port of a rendezvous, judged by the first bytes.
enum class FirstBytes {
  Incomplete,
  Agent,     // an agent of ddp-run
  TcpStore,  // a client of the workers' store, or torchrun's agent
  Unknown,
};
FirstBytes judge_first_bytes(std::string_view bytes);

class ControlChannel {
 public:
  enum class Side { Agent, Host };
  enum class State {
    Connecting,  // Agent: connect() is in progress
    Greeting,    // the handshake is in progress
    Open,
    Closed,  // see problem()
  };

  /// Takes ownership of a non-blocking socket: as Agent one on which connect() was called, as Host
  /// an accepted one of which nothing was read.
  ControlChannel(int fd, Side side, std::string token);
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  State state() const { return state_; }
  /// Why it was closed: "Connection refused", "the peer closed the connection".
  const std::string& problem() const { return problem_; }
  /// Whether the peer or the network closed it, rather than this end because of what the peer sent.
  bool peer_is_gone() const { return peer_is_gone_; }

  int fd() const { return fd_; }
  /// POLLIN, POLLOUT or both; 0 when closed.
  short wanted() const;
  /// Call when poll() reports the descriptor.
  void handle();
  /// Returns the oldest message received; nullopt: none.
  std::optional<ControlMessage> take();
  /// Queues a message until the channel is open. Closes the channel if the peer reads too slowly.
  void send(const ControlMessage& message);
  /// Shuts down sending once everything queued has been sent.
  void finish_sending();
  bool all_sent() const { return out_.empty(); }

  /// Numeric addresses of both ends.
  std::string local_address() const;
  std::string peer_address() const;

 private:
  using Nonce = std::array<std::uint8_t, 16>;

  void close(std::string why, bool peer_is_gone = false);
  void finish_connect();
  void read_all();
  void write_all();
  void greet();
  void take_frames();
  void enter_open();
  std::string proof_of(std::string_view side) const;

  int fd_;
  Side side_;
  std::string token_;
  State state_;
  std::string problem_;
  bool peer_is_gone_ = false;
  bool finishing_ = false;
  Nonce own_nonce_{};
  std::string peer_nonce_;
  std::string in_;
  std::string out_;
  std::string waiting_;  // frames to send once the channel is open
  std::deque<ControlMessage> received_;
};

}  // namespace ddp::launch
