#include "launcher/rendezvous/wire/control_channel.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/sockets.h"

namespace ddp::launch {
namespace {

constexpr std::string_view kName = "DDP-RUN";
constexpr std::string_view kMagic = "DDP-RUN/";  // version 1 had a 1 here, and no other version
constexpr std::string_view kTcpStoreStart("\x00\xCE\xF7\x85\x3C", 5);  // VALIDATE and its magic
constexpr std::size_t kVersionEnd = kMagic.size() + 2;
constexpr std::size_t kGreetingSize = kVersionEnd + 16;
constexpr std::size_t kHeadSize = 4;
// In one turn. More makes other connections and the workers' supervision wait.
constexpr std::size_t kBytesAtOnce = 256 << 10;
constexpr std::size_t kMessagesAtOnce = 256;
constexpr std::size_t kReadSize = 16 << 10;
// Far above what a node with thousands of workers sends.
constexpr std::size_t kMostWaiting = 1'024;
constexpr double kFramesAtOnce = 16'384, kFramesPerSecond = 1'024;

// The kernel closes a connection whose bytes were not acknowledged for so long, in ms. After each
// lost packet TCP waits twice as long as before; a new connection is there sooner.
constexpr int kUnacknowledged = 5'000;

constexpr const char* kNoRendezvous = "the peer is not a ddp-run rendezvous";

std::size_t frame_size(std::string_view head) {
  std::size_t size = 0;
  for (const char c : head.substr(0, kHeadSize)) size = size << 8U | static_cast<unsigned char>(c);
  return size;
}

std::string greeting() {
  std::array<char, kGreetingSize - kVersionEnd> nonce{};
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) return "";
  std::string text(kMagic);
  text += static_cast<char>(kProtocolVersion >> 8);
  text += static_cast<char>(kProtocolVersion & 0xff);
  return text.append(nonce.data(), nonce.size());
}

// 0: not a greeting.
int version_of(std::string_view greeting) {
  if (!greeting.starts_with(kMagic)) return greeting[kName.size()] == '1' ? 1 : 0;
  return static_cast<unsigned char>(greeting[kMagic.size()]) << 8 |
         static_cast<unsigned char>(greeting[kMagic.size() + 1]);
}

// A host of many nodes must not keep for each what its longest message has needed.
void release(std::string& buffer) { std::string().swap(buffer); }

}  // namespace

FirstBytes judge_first_bytes(std::string_view bytes) {
  for (const auto& [start, kind] :
       {std::pair(kName, FirstBytes::kAgent), std::pair(kTcpStoreStart, FirstBytes::kTcpStore)}) {
    const auto size = std::min(bytes.size(), start.size());
    if (bytes.substr(0, size) != start.substr(0, size)) continue;
    return size == start.size() ? kind : FirstBytes::kIncomplete;
  }
  return FirstBytes::kUnknown;
}

ControlChannel::ControlChannel(int fd, Side side, std::string token)
    : fd_(fd),
      side_(side),
      token_(std::move(token)),
      state_(side == Side::kAgent ? State::kConnecting : State::kGreeting),
      own_greeting_(greeting()),
      frames_left_(kFramesAtOnce),
      frames_since_(Clock::now()) {
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnacknowledged, sizeof kUnacknowledged);
  if (own_greeting_.empty()) close("cannot get random numbers: " + error_text(errno));
}

void ControlChannel::close(std::string why, bool peer_is_gone) {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  problem_ = std::move(why);
  peer_is_gone_ = peer_is_gone;
  fd_.reset();
}

void ControlChannel::reject(Objection objection, std::string why) {
  objection_ = objection;
  close(std::move(why));
}

short ControlChannel::wanted() const {
  if (state_ == State::kClosed) return 0;
  if (state_ == State::kConnecting) return POLLOUT;
  const bool reads = received_.size() < kMessagesAtOnce;
  return static_cast<short>((reads ? POLLIN : 0) | (out_.empty() ? 0 : POLLOUT));
}

void ControlChannel::handle() {
  if (state_ == State::kConnecting) finish_connect();
  if (state_ != State::kConnecting && state_ != State::kClosed) read_some();
  if (state_ != State::kConnecting && state_ != State::kClosed) write_all();
  proof_sent_ = proof_sent_ || (keys_ && out_.empty());
}

void ControlChannel::finish_connect() {
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return close(error_text(error), error == ECONNREFUSED);
  pollfd ready{fd(), POLLOUT, 0};
  if (::poll(&ready, 1, 0) != 1) return;  // connect() is still under way
  state_ = State::kGreeting;
  out_ += own_greeting_;
}

// A peer without a proof cannot make this end hold more than the handshake has bytes; otherwise no
// more than one frame is held that is not complete.
std::size_t ControlChannel::next_read() const {
  if (state_ == State::kGreeting)
    return (peer_greeting_.empty() ? kGreetingSize : kTagSize) - in_.size();
  if (in_.size() < kHeadSize) return kReadSize;
  return std::max(kReadSize, kHeadSize + frame_size(in_) + kTagSize - in_.size());
}

void ControlChannel::read_some() {
  std::array<char, 64 << 10> buffer;
  std::size_t total = 0;
  while (total < kBytesAtOnce && received_.size() < kMessagesAtOnce) {
    const ssize_t got = ::recv(fd(), buffer.data(), std::min(buffer.size(), next_read()), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got < 0) return close(error_text(errno), true);
    if (got == 0) {
      // An agent looks at the host's proof first, and hangs up if the tokens differ.
      if (side_ == Side::kHost && state_ == State::kGreeting && proof_sent_)
        objection_ = Objection::kWrongToken;
      return close("the peer closed the connection", true);
    }
    total += static_cast<std::size_t>(got);
    in_.append(buffer.data(), static_cast<std::size_t>(got));
    if (state_ == State::kGreeting) {
      greet();
    } else {
      take_frames();
    }
    if (state_ == State::kClosed) return;
  }
}

void ControlChannel::write_all() {
  while (!out_.empty()) {
    const ssize_t sent = ::send(fd(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent < 0) return close(error_text(errno), true);
    out_.erase(0, static_cast<std::size_t>(sent));
  }
  release(out_);
  if (finishing_) ::shutdown(fd(), SHUT_WR);
}

void ControlChannel::greet() {
  if (peer_greeting_.empty() && !take_greeting()) return;
  if (in_.size() >= kTagSize) take_proof();
}

// False: there is no whole greeting yet, or it will not do.
bool ControlChannel::take_greeting() {
  const auto kind = judge_first_bytes(in_);
  if (kind != FirstBytes::kAgent && kind != FirstBytes::kIncomplete) {
    close(kNoRendezvous);
    return false;
  }
  if (in_.size() < kVersionEnd) return false;
  if (const int version = version_of(in_); version != kProtocolVersion) {
    reject_version(version);
    return false;
  }
  if (in_.size() < kGreetingSize) return false;
  peer_greeting_ = in_.substr(0, kGreetingSize);
  in_.erase(0, kGreetingSize);
  const bool is_agent = side_ == Side::kAgent;
  keys_.emplace(token_, is_agent ? own_greeting_ : peer_greeting_,
                is_agent ? peer_greeting_ : own_greeting_);
  if (!is_agent) out_ += own_greeting_ + keys_->proof(side_);
  return true;
}

// The other end compares, too; it learns nothing else.
void ControlChannel::reject_version(int version) {
  if (version == 0) return close(kNoRendezvous);
  if (side_ == Side::kHost) {
    [[maybe_unused]] const auto sent =
        ::send(fd(), own_greeting_.data(), kVersionEnd, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  reject(Objection::kOtherVersion,
         fmt::format("its ddp-run has version {} of the rendezvous protocol, this one (" DDP_VERSION
                     ") version {}; install the same ddp-run on all nodes",
                     version, kProtocolVersion));
}

void ControlChannel::take_proof() {
  if (!keys_->accepts_proof(peer(), std::string_view(in_).substr(0, kTagSize))) {
    return reject(Objection::kWrongToken,
                  "authentication failed: it is not a ddp-run rendezvous, or --rdzv-token-file "
                  "differs between the nodes");
  }
  in_.erase(0, kTagSize);
  if (side_ == Side::kAgent) out_ += keys_->proof(side_);
  enter_open();
}

void ControlChannel::enter_open() {
  state_ = State::kOpen;
  outgoing_ = keys_->seal(side_);
  incoming_ = keys_->seal(peer());
  keys_.reset();
  token_.clear();
  for (const auto& text : std::exchange(waiting_, {})) send_text(text);
}

// A peer that sends without end would keep this end busy, though it holds nothing.
bool ControlChannel::may_take_frame() {
  if (frames_left_ < 1) {
    const auto now = Clock::now();
    const std::chrono::duration<double> passed = now - std::exchange(frames_since_, now);
    frames_left_ = std::min(kFramesAtOnce, frames_left_ + passed.count() * kFramesPerSecond);
  }
  return --frames_left_ >= 0;
}

void ControlChannel::take_frames() {
  std::size_t at = 0;
  while (in_.size() - at >= kHeadSize) {
    const std::string_view rest = std::string_view(in_).substr(at);
    const std::size_t size = frame_size(rest);
    if (size > limits_.frame)
      return close(fmt::format("the peer sent a frame of more than {} KiB", limits_.frame >> 10));
    if (rest.size() < kHeadSize + size + kTagSize) break;
    if (!may_take_frame()) return close("the peer sends too many messages");
    const std::string_view body = rest.substr(kHeadSize, size);
    // As if the network had reset the connection: that is what it did, or worse.
    if (!incoming_.accepts(body, rest.substr(kHeadSize + size, kTagSize)))
      return close("a frame was altered on its way", /*peer_is_gone=*/true);
    auto message = parse_control_message(body);
    if (!message)
      return close("the peer sent a malformed message; is its ddp-run of this version?");
    received_.push_back(std::move(*message));
    at += kHeadSize + size + kTagSize;
  }
  in_.erase(0, at);
  if (in_.empty()) release(in_);
}

std::optional<ControlMessage> ControlChannel::take() {
  if (received_.empty()) return std::nullopt;
  auto message = std::move(received_.front());
  received_.pop_front();
  return message;
}

std::string ControlChannel::frame_of(const std::string& text) {
  std::string frame;
  for (const unsigned shift : {24U, 16U, 8U, 0U})
    frame += static_cast<char>((text.size() >> shift) & 0xffU);
  return frame + text + outgoing_.next_tag(text);
}

void ControlChannel::send(const ControlMessage& message) { send_text(to_json_text(message)); }

void ControlChannel::send_text(const std::string& json) {
  if (state_ == State::kClosed) return;
  if (state_ != State::kOpen && waiting_.size() >= kMostWaiting)
    return close("the peer answers too slowly", true);
  if (state_ != State::kOpen) return waiting_.push_back(json);
  out_ += frame_of(json);
  if (out_.size() > limits_.queue) return close("the peer reads too slowly", true);
  write_all();
}

void ControlChannel::finish_sending() {
  finishing_ = true;
  if (state_ == State::kOpen) write_all();
}

std::string ControlChannel::local_address() const { return numeric_address(fd(), /*peer=*/false); }
std::string ControlChannel::peer_address() const { return numeric_address(fd(), /*peer=*/true); }

}  // namespace ddp::launch
