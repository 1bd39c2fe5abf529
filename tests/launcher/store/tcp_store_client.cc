#include "tests/launcher/store/tcp_store_client.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/system/sockets.h"
#include "tests/launcher/store/request_bytes.h"

namespace ddp::launch {
namespace {

constexpr std::chrono::milliseconds kFirstPause{20}, kLongestPause{500};
constexpr std::uint32_t kNonce = 0x64647072;

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
  if (!parse_address(address_, port_)) {
    throw LaunchError(2, fmt::format("the store's address {} is not numeric", address_));
  }
  connect();
}

TcpStoreClient::~TcpStoreClient() { close_socket(); }

void TcpStoreClient::ask(Request request) {
  queued_ += size_of(request);
  if (queued_ > limits_.message) return fail("too many requests are waiting to be sent");
  requests_.push_back(std::move(request));
  if (state_ == State::kOpen) send_requests();
}

std::optional<StoreAnswer> TcpStoreClient::take() {
  if (answers_.empty()) return std::nullopt;
  StoreAnswer answer = std::move(answers_.front());
  answers_.pop_front();
  return answer;
}

void TcpStoreClient::add_poll_fds(std::vector<pollfd>& fds) const {
  if (socket_ < 0) return;
  const bool writes = in_progress_ || !output_.empty();
  fds.push_back({socket_, static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
}

void TcpStoreClient::handle(const std::vector<pollfd>& fds) {
  if (retry_at_ && Clock::now() >= *retry_at_) return connect();
  const auto found = std::find_if(fds.begin(), fds.end(), [this](const pollfd& p) {
    return p.fd == socket_ && p.revents != 0;
  });
  if (found == fds.end() || socket_ < 0) return;
  if (in_progress_) return connected();
  if ((found->revents & ~POLLOUT) != 0) receive();
  if (socket_ >= 0) send_requests();
}

void TcpStoreClient::connect() {
  retry_at_.reset();
  socket_ = begin_connect(*parse_address(address_, port_));
  if (socket_ < 0) return try_later(error_text(errno));
  const int on = 1;
  ::setsockopt(socket_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  in_progress_ = true;
}

// Or not, as the socket says.
void TcpStoreClient::connected() {
  in_progress_ = false;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return try_later(error_text(error));
  parser_ = AnswerParser(limits_);
  parser_.expect(QueryType::kPing, 0);
  output_ = encode({QueryType::kValidate, {}, {}, kTcpStoreMagic}) +
            encode({QueryType::kPing, {}, {}, kNonce});
  send_requests();
}

void TcpStoreClient::try_later(const std::string& why) {
  close_socket();
  problem_ = why;
  pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
  retry_at_ = Clock::now() + pause_;
}

// Until a server has answered, it may just be coming up.
void TcpStoreClient::fail(const std::string& why) {
  if (state_ == State::kConnecting && socket_ >= 0) return try_later(why);
  close_socket();
  problem_ = why;
  state_ = State::kLost;
}

void TcpStoreClient::close_socket() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
  in_progress_ = false;
  output_.clear();
}

void TcpStoreClient::send_requests() {
  while (state_ == State::kOpen && !requests_.empty() && !parser_.expects()) {
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
    if (next == AnswerParser::Next::kNeedsMoreBytes) return;
    const bool pong = state_ == State::kConnecting;
    if (next == AnswerParser::Next::kMalformed || (pong && answer.number != kNonce)) {
      return fail("the answer is not a TCPStore's");
    }
    if (pong) {
      state_ = State::kOpen;
      problem_.clear();
    } else {
      answers_.push_back(std::move(answer));
    }
    send_requests();
    if (socket_ < 0) return;
  }
}

}  // namespace ddp::launch
