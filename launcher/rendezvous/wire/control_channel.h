// A connection between the agents of two nodes: a handshake that proves to each end that the other
// knows the job's token, then frames of JSON, each with a MAC; see docs/wire-protocol.md. Never
// blocks, and bounds the memory and work that a peer can cause.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/base/clock.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/rendezvous/wire/connection_keys.h"
#include "launcher/rendezvous/wire/control_messages.h"

namespace ddp::launch {

/// Version of handshake, frames and messages. Changes whenever agents from before and after a
/// change could not work together.
inline constexpr int kProtocolVersion = 3;

/// Who connects to the port of a rendezvous, judged by the first bytes.
enum class FirstBytes {
  kIncomplete,
  kAgent,     // an agent of ddp-run, of whatever version
  kTcpStore,  // a client of the workers' store, or torchrun's agent
  kUnknown,
};
FirstBytes judge_first_bytes(std::string_view bytes);

class ControlChannel {
 public:
  using Side = ConnectionKeys::From;
  enum class State {
    kConnecting,  // Agent: connect() is in progress
    kGreeting,    // the handshake is in progress
    kOpen,
    kClosed,  // see problem()
  };
  /// Why this end permanently refuses that peer.
  enum class Objection { kNone, kOtherVersion, kWrongToken };
  /// In bytes.
  struct Limits {
    std::size_t frame = 1 << 20;
    std::size_t queue = 4 << 20;  // not sent yet
  };
  /// For a peer that has not sent Hello.
  static constexpr Limits kForStrangers{16 << 10, 64 << 10};

  /// Takes ownership of a non-blocking socket: as Agent one on which connect() was called, as Host
  /// an accepted one from which nothing has been read.
  ControlChannel(int fd, Side side, std::string token);

  State state() const { return state_; }
  /// Why it was closed: "Connection refused", "the peer closed the connection".
  const std::string& problem() const { return problem_; }
  Objection objection() const { return objection_; }
  /// Whether the peer or the network closed it, rather than this end because of what the peer sent.
  bool peer_is_gone() const { return peer_is_gone_; }

  int fd() const { return fd_.get(); }
  /// POLLIN, POLLOUT or both; 0 when closed.
  short wanted() const;
  /// Call when poll() reports the descriptor. Reads a bounded number of bytes and messages: if more
  /// have arrived, poll() reports the descriptor again.
  void handle();
  /// Returns the oldest message received; nullopt: none.
  std::optional<ControlMessage> take();
  /// Queues a message until the channel is open. Closes the channel if the peer reads too slowly.
  void send(const ControlMessage& message);
  /// The same for an already serialized message.
  void send_text(const std::string& json);
  void give_up(const std::string& why) { close(why); }
  /// Shuts down sending once everything queued has been sent.
  void finish_sending();
  bool all_sent() const { return out_.empty(); }
  void limit(const Limits& limits) { limits_ = limits; }

  /// Numeric addresses of both ends.
  std::string local_address() const;
  std::string peer_address() const;

 private:
  void close(std::string why, bool peer_is_gone = false);
  void reject(Objection objection, std::string why);
  void reject_version(int version);
  void finish_connect();
  void read_some();
  std::size_t next_read() const;
  void write_all();
  void greet();
  bool take_greeting();
  void take_proof();
  void take_frames();
  bool may_take_frame();
  void enter_open();
  std::string frame_of(const std::string& text);
  Side peer() const { return side_ == Side::kAgent ? Side::kHost : Side::kAgent; }

  Descriptor fd_;
  Side side_;
  std::string token_;
  State state_;
  std::string problem_;
  Objection objection_ = Objection::kNone;
  bool peer_is_gone_ = false;
  bool finishing_ = false;
  bool proof_sent_ = false;
  Limits limits_;
  std::string own_greeting_;
  std::string peer_greeting_;  // empty: has not arrived
  std::optional<ConnectionKeys> keys_{};
  FrameSeal outgoing_;
  FrameSeal incoming_;
  std::string in_;
  std::string out_;
  std::deque<std::string> waiting_;  // to be sent once the channel is open
  std::deque<ControlMessage> received_;
  double frames_left_;  // number that the peer may send at once
  Clock::time_point frames_since_;
};

}  // namespace ddp::launch
