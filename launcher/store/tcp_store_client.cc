#include "launcher/store/tcp_store_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/base/errors.h"

namespace ddp::launch {
namespace {

constexpr int kFirstPauseMs = 20, kLongestPauseMs = 500;
constexpr std::uint32_t kNonce = 0x64647072;

union StoreAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

// 0: not a numeric address.
socklen_t fill_store_address(StoreAddress& address, const std::string& text, int port) {
  const auto network_port = htons(static_cast<in_port_t>(port));
  address = {};
  if (::inet_pton(AF_INET, text.c_str(), &address.v4.sin_addr) == 1) {
    address.v4.sin_family = AF_INET;
    address.v4.sin_port = network_port;
    return sizeof address.v4;
  }
  if (::inet_pton(AF_INET6, text.c_str(), &address.v6.sin6_addr) == 1) {
    address.v6.sin6_family = AF_INET6;
    address.v6.sin6_port = network_port;
    return sizeof address.v6;
  }
  return 0;
}

std::size_t size_of(const Request& request) {
  std::size_t size = 64;
  for (const auto& key : request.keys) size += key.size() + 32;
  for (const auto& value : request.values) size += value.size() + 32;
  return size;
}

bool store_try_again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

TcpStoreClient::TcpStoreClient(std::string address, int port)
    : address_(std::move(address)), port_(port) {
  StoreAddress unused{};
  if (fill_store_address(unused, address_, port_) == 0) {
    throw LaunchError(2, fmt::format("the store's address {} is not numeric", address_));
  }
  timer_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (timer_ < 0) throw LaunchError(1, "the store's client: " + error_text(errno));
  connect();
}

TcpStoreClient::~TcpStoreClient() {
  close_socket();
  ::close(timer_);
}

void TcpStoreClient::ask(Request request) {
  queued_ += size_of(request);
  if (queued_ > limits_.message) return fail("too many requests are waiting to be sent");
  requests_.push_back(std::move(request));
  if (state_ == State::Open) send_requests();
}

std::optional<StoreAnswer> TcpStoreClient::take() {
  if (answers_.empty()) return std::nullopt;
  StoreAnswer answer = std::move(answers_.front());
  answers_.pop_front();
  return answer;
}

void TcpStoreClient::add_poll_fds(std::vector<pollfd>& fds) const {
  if (state_ == State::Lost) return;
  if (socket_ < 0) {
    fds.push_back({timer_, POLLIN, 0});
  } else {
    const bool writes = in_progress_ || !output_.empty();
    fds.push_back({socket_, static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
  }
}

void TcpStoreClient::handle(const std::vector<pollfd>& fds) {
  const int mine = socket_ >= 0 ? socket_ : timer_;
  const auto found = std::find_if(
      fds.begin(), fds.end(), [mine](const pollfd& p) { return p.fd == mine && p.revents != 0; });
  if (found == fds.end() || state_ == State::Lost) return;
  if (socket_ < 0) return end_rest();
  if (in_progress_) return connected();
  if ((found->revents & ~POLLOUT) != 0) receive();
  if (socket_ >= 0) send_requests();
}

void TcpStoreClient::connect() {
  StoreAddress address{};
  const socklen_t size = fill_store_address(address, address_, port_);
  socket_ = ::socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_ < 0) return try_later(error_text(errno));
  const int on = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  in_progress_ = true;
  if (::connect(socket_, &address.any, size) == 0) return connected();
  if (errno != EINPROGRESS) try_later(error_text(errno));
}

// Or not, as the socket says.
void TcpStoreClient::connected() {
  in_progress_ = false;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return try_later(error_text(error));
  parser_ = AnswerParser(limits_);
  parser_.expect(QueryType::Ping, 0);
  output_ = encode({QueryType::Validate, {}, {}, kTcpStoreMagic}) +
            encode({QueryType::Ping, {}, {}, kNonce});
  send_requests();
}

void TcpStoreClient::try_later(const std::string& why) {
  close_socket();
  problem_ = why;
  pause_ms_ = std::clamp(2 * pause_ms_, kFirstPauseMs, kLongestPauseMs);
  const itimerspec once{{0, 0}, {0, pause_ms_ * 1'000'000L}};
  ::timerfd_settime(timer_, 0, &once, nullptr);
}

void TcpStoreClient::end_rest() {
  std::uint64_t times = 0;
  [[maybe_unused]] const auto got = ::read(timer_, &times, sizeof times);
  connect();
}

// Until a server has answered, it may just be coming up.
void TcpStoreClient::fail(const std::string& why) {
  if (state_ == State::Connecting && socket_ >= 0) return try_later(why);
  close_socket();
  problem_ = why;
  state_ = State::Lost;
}

void TcpStoreClient::close_socket() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
  in_progress_ = false;
  output_.clear();
}

void TcpStoreClient::send_requests() {
  while (state_ == State::Open && !requests_.empty() && !parser_.expects()) {
    const Request& request = requests_.front();
    if (has_answer(request.type)) parser_.expect(request.type, request.keys.size());
    output_ += encode(request);
    queued_ -= size_of(request);
    requests_.pop_front();
  }
  while (!output_.empty()) {
    const ssize_t sent = ::send(socket_, output_.data(), output_.size(), MSG_NOSIGNAL);
    if (sent < 0 && store_try_again()) return;
    if (sent < 0) return fail(error_text(errno));
    output_.erase(0, static_cast<std::size_t>(sent));
  }
}

void TcpStoreClient::receive() {
  char buffer[64 << 10];
  const ssize_t got = ::recv(socket_, buffer, sizeof buffer, 0);
  if (got < 0 && store_try_again()) return;
  if (got < 0) return fail(error_text(errno));
  if (got == 0) return fail("the store closed the connection");
  parser_.feed({buffer, static_cast<std::size_t>(got)});
  take_answers();
}

void TcpStoreClient::take_answers() {
  StoreAnswer answer;
  for (;;) {
    const auto next = parser_.next(answer);
    if (next == AnswerParser::Next::NeedsMoreBytes) return;
    const bool pong = state_ == State::Connecting;
    if (next == AnswerParser::Next::Malformed || (pong && answer.number != kNonce)) {
      return fail("the answer is not a TCPStore's");
    }
    if (pong) {
      state_ = State::Open;
      problem_.clear();
    } else {
      answers_.push_back(std::move(answer));
    }
    send_requests();
    if (socket_ < 0) return;
  }
}

}  // namespace ddp::launch
