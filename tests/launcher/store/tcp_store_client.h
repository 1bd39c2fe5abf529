// A client of torch's TCPStore protocol in the agent's poll loop: for a store of torch's own server
// as well as of ours. Never blocks, resolves no names.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/system/poll_handler.h"
#include "launcher/store/tcp_store_protocol.h"
#include "tests/launcher/store/answer_parser.h"

namespace ddp::launch {

/// Keys are as on the wire: torch's TCPStore puts "/" before those of its users.
class TcpStoreClient : public PollHandler {
 public:
  /// Connecting: until a server has answered; tries again and again. Lost is final.
  enum class State { kConnecting, kOpen, kLost };

  /// `address`: numeric, IPv4 or IPv6. Throws LaunchError (2) if it is not.
  TcpStoreClient(std::string address, int port);
  ~TcpStoreClient() override;
  TcpStoreClient(const TcpStoreClient&) = delete;
  TcpStoreClient& operator=(const TcpStoreClient&) = delete;

  /// Requests are sent in order, each when the answers to those before it are there; may be called
  /// in any state. A WAIT gets its reply when its keys are there, and the requests after it wait as
  /// well.
  void ask(Request request);
  /// The answers in the order of the requests that have one.
  std::optional<StoreAnswer> take();

  State state() const { return state_; }
  /// Connecting: why the last attempt failed, if one did. Lost: why.
  const std::string& problem() const { return problem_; }

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override { return retry_at_; }

 private:
  void connect();
  void connected();
  void try_later(const std::string& why);
  void fail(const std::string& why);
  void close_socket();
  void send_requests();
  void receive();
  void take_answers();

  StoreLimits limits_;
  std::string address_;
  int port_;
  State state_ = State::kConnecting;
  std::string problem_;
  int socket_ = -1;
  bool in_progress_ = false;  // connect()
  std::optional<Clock::time_point> retry_at_;
  std::chrono::milliseconds pause_{0};
  AnswerParser parser_;
  std::string output_;
  std::deque<Request> requests_;  // not yet in output_
  std::size_t queued_ = 0;        // bytes of them, roughly
  std::deque<StoreAnswer> answers_;
};

}  // namespace ddp::launch
