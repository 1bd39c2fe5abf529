#include "launcher/rendezvous/control_channel.h"

#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "launcher/base/descriptors.h"
#include "launcher/base/errors.h"
#include "launcher/base/sockets.h"

namespace ddp::launch {
namespace {

constexpr std::string_view kMagic = "DDP-RUN1";
constexpr std::string_view kTcpStoreStart("\x00\xCE\xF7\x85\x3C", 5);  // VALIDATE and its magic
constexpr std::size_t kNonceSize = 16;
constexpr std::size_t kProofSize = SHA256_DIGEST_SIZE;
constexpr std::size_t kLargestFrame = 1 << 20;
constexpr std::size_t kLongestQueue = 16 << 20;  // bytes not sent yet

std::string frame_of(const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  std::string frame;
  for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>((size >> shift) & 0xffU);
  return frame + text;
}

std::size_t frame_size(std::string_view head) {
  std::size_t size = 0;
  for (const char c : head.substr(0, 4)) size = size << 8U | static_cast<unsigned char>(c);
  return size;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::memeql_sec(a.data(), b.data(), a.size()) != 0;
}

}  // namespace

FirstBytes judge_first_bytes(std::string_view bytes) {
  for (const auto& [start, kind] :
       {std::pair(kMagic, FirstBytes::Agent), std::pair(kTcpStoreStart, FirstBytes::TcpStore)}) {
    const auto size = std::min(bytes.size(), start.size());
    if (bytes.substr(0, size) != start.substr(0, size)) continue;
    return size == start.size() ? kind : FirstBytes::Incomplete;
  }
  return FirstBytes::Unknown;
}

ControlChannel::ControlChannel(int fd, Side side, std::string token)
    : fd_(fd),
      side_(side),
      token_(std::move(token)),
      state_(side == Side::Agent ? State::Connecting : State::Greeting) {
  if (::getrandom(own_nonce_.data(), own_nonce_.size(), 0) !=
      static_cast<ssize_t>(own_nonce_.size()))
    close("cannot get random numbers: " + error_text(errno));
}

ControlChannel::~ControlChannel() {
  if (fd_ >= 0) ::close(fd_);
}

void ControlChannel::close(std::string why, bool peer_is_gone) {
  if (state_ == State::Closed) return;
  state_ = State::Closed;
  problem_ = std::move(why);
  peer_is_gone_ = peer_is_gone;
  close_descriptor(fd_);
}

short ControlChannel::wanted() const {
  if (state_ == State::Closed) return 0;
  if (state_ == State::Connecting) return POLLOUT;
  return static_cast<short>(POLLIN | (out_.empty() ? 0 : POLLOUT));
}

void ControlChannel::handle() {
  if (state_ == State::Connecting) finish_connect();
  if (state_ != State::Connecting && state_ != State::Closed) read_all();
  if (state_ != State::Connecting && state_ != State::Closed) write_all();
}

void ControlChannel::finish_connect() {
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return close(error_text(error), error == ECONNREFUSED);
  pollfd ready{fd_, POLLOUT, 0};
  if (::poll(&ready, 1, 0) != 1) return;  // connect() is still under way
  state_ = State::Greeting;
  out_ += kMagic;
  out_.append(own_nonce_.begin(), own_nonce_.end());
}

void ControlChannel::read_all() {
  std::array<char, 64 << 10> buffer;
  for (;;) {
    const ssize_t got = ::recv(fd_, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got < 0) return close(error_text(errno), true);
    if (got == 0) return close("the peer closed the connection", true);
    in_.append(buffer.data(), static_cast<std::size_t>(got));
    if (state_ == State::Greeting) greet();
    if (state_ == State::Open) take_frames();
    if (state_ == State::Closed) return;
  }
}

void ControlChannel::write_all() {
  while (!out_.empty()) {
    const ssize_t sent = ::send(fd_, out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent < 0) return close(error_text(errno), true);
    out_.erase(0, static_cast<std::size_t>(sent));
  }
  if (finishing_) ::shutdown(fd_, SHUT_WR);
}

// Agent's nonce first, whichever side computes it.
std::string ControlChannel::proof_of(std::string_view side) const {
  const std::string own(own_nonce_.begin(), own_nonce_.end());
  const bool is_agent = side_ == Side::Agent;
  const std::string text =
      std::string(side) + (is_agent ? own : peer_nonce_) + (is_agent ? peer_nonce_ : own);
  const auto* bytes = [](std::string_view s) {
    return reinterpret_cast<const std::uint8_t*>(s.data());
  }(text);
  hmac_sha256_ctx context;
  ::hmac_sha256_set_key(&context, token_.size(),
                        reinterpret_cast<const std::uint8_t*>(token_.data()));
  ::hmac_sha256_update(&context, text.size(), bytes);
  std::array<std::uint8_t, kProofSize> digest;
  ::hmac_sha256_digest(&context, digest.size(), digest.data());
  return {digest.begin(), digest.end()};
}

void ControlChannel::greet() {
  const char* const kForeign = "the peer is not a ddp-run rendezvous";
  const char* const kWrongToken =
      "authentication failed: it is not a ddp-run rendezvous, or --rdzv-token-file differs between "
      "the "
      "nodes";
  if (side_ == Side::Agent) {
    if (in_.size() < kNonceSize + kProofSize) return;
    peer_nonce_ = in_.substr(0, kNonceSize);
    if (!equal_in_constant_time(in_.substr(kNonceSize, kProofSize), proof_of("host")))
      return close(kWrongToken);
    in_.erase(0, kNonceSize + kProofSize);
    out_ += proof_of("agent");
    return enter_open();
  }
  const bool first = peer_nonce_.empty();
  const std::size_t needed = first ? kMagic.size() + kNonceSize : kProofSize;
  if (first && judge_first_bytes(in_) != FirstBytes::Agent &&
      judge_first_bytes(in_) != FirstBytes::Incomplete)
    return close(kForeign);
  if (in_.size() < needed) return;
  if (first) {
    peer_nonce_ = in_.substr(kMagic.size(), kNonceSize);
    out_.append(own_nonce_.begin(), own_nonce_.end());
    out_ += proof_of("host");
    in_.erase(0, needed);
    return greet();
  }
  if (!equal_in_constant_time(in_.substr(0, kProofSize), proof_of("agent")))
    return close(kWrongToken);
  in_.erase(0, needed);
  enter_open();
}

void ControlChannel::enter_open() {
  state_ = State::Open;
  out_ += std::exchange(waiting_, {});
}

void ControlChannel::take_frames() {
  while (in_.size() >= 4) {
    const std::size_t size = frame_size(in_);
    if (size > kLargestFrame) return close("the peer sent a frame of more than 1 MiB");
    if (in_.size() < 4 + size) return;
    auto message = parse_control_message(std::string_view(in_).substr(4, size));
    if (!message)
      return close("the peer sent a malformed message; is its ddp-run of this version?");
    received_.push_back(std::move(*message));
    in_.erase(0, 4 + size);
  }
}

std::optional<ControlMessage> ControlChannel::take() {
  if (received_.empty()) return std::nullopt;
  auto message = std::move(received_.front());
  received_.pop_front();
  return message;
}

void ControlChannel::send(const ControlMessage& message) {
  if (state_ == State::Closed) return;
  std::string& queue = state_ == State::Open ? out_ : waiting_;
  queue += frame_of(to_json_text(message));
  if (queue.size() > kLongestQueue) return close("the peer reads too slowly", true);
  if (state_ == State::Open) write_all();
}

void ControlChannel::finish_sending() {
  finishing_ = true;
  if (state_ == State::Open) write_all();
}

std::string ControlChannel::local_address() const { return numeric_address(fd_, /*peer=*/false); }
std::string ControlChannel::peer_address() const { return numeric_address(fd_, /*peer=*/true); }

}  // namespace ddp::launch
