#include "launcher/rendezvous/wire/inquiry.h"

#include <cerrno>
#include <cstdint>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/system/sockets.h"

namespace ddp::launch {
namespace {

constexpr std::chrono::milliseconds kPause{250};
constexpr std::chrono::milliseconds kLongPause{500};  // another agent may come there
constexpr std::chrono::milliseconds kShortPause{20};  // after an end without information
constexpr std::chrono::milliseconds kSlow{1'000};     // then others are asked as well

}  // namespace

Inquiry::Inquiry(const std::vector<Place>& places, Status question, std::string token,
                 std::chrono::milliseconds patience)
    : callers_(places.size()),
      question_(std::move(question)),
      token_(std::move(token)),
      patience_(patience),
      began_(Clock::now()),
      turn_(began_) {
  for (const Place& place : places) findings_.push_back({.place = place});
  for (Caller& caller : callers_) caller.next = caller.since = began_;
}

std::size_t Inquiry::asked() const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < findings_.size(); ++i) {
    const bool slow = findings_[i].found != Found::kAnswer && Clock::now() - began_ >= kSlow;
    count += findings_[i].gone || slow ? 0 : 1;
    if (count == limit_) return i + 1;
  }
  return findings_.size();
}

void Inquiry::note(std::size_t i, Found found) {
  findings_[i].found = found;
  if (found == Found::kRefused && !findings_[i].gone) findings_[i].gone = Clock::now();
}

void Inquiry::rest(std::size_t i, std::chrono::milliseconds pause) {
  callers_[i].channel.reset();
  callers_[i].next = Clock::now() + pause;
  if (!findings_[i].gone && turn_ - callers_[i].since >= patience_) note(i, Found::kSilence);
}

void Inquiry::ask(std::size_t i) {
  const auto address = parse_address(findings_[i].place.address, findings_[i].place.port);
  const int fd = address ? begin_connect(*address) : -1;
  if (fd < 0 && errno == ECONNREFUSED) note(i, Found::kRefused);
  if (fd < 0) return rest(i, kLongPause);
  callers_[i].asked = false;
  callers_[i].next = Clock::now() + patience_;
  callers_[i].channel = std::make_unique<ControlChannel>(fd, ControlChannel::Side::kAgent, token_);
}

void Inquiry::listen(std::size_t i) {
  Caller& caller = callers_[i];
  caller.channel->handle();
  if (caller.channel->state() == ControlChannel::State::kOpen && !std::exchange(caller.asked, true))
    caller.channel->send(question_);
  while (const auto message = caller.channel->take()) {
    const auto* status = std::get_if<Status>(&*message);
    if (!status || status->run_id != question_.run_id) continue;
    findings_[i].status = *status;
    note(i, Found::kAnswer);
    caller.since = Clock::now();
    return rest(i, kPause);
  }
  if (caller.channel->state() != ControlChannel::State::kClosed) return;
  const bool refused = caller.channel->problem() == error_text(ECONNREFUSED);
  if (refused) note(i, Found::kRefused);
  const bool objects = caller.channel->objection() != ControlChannel::Objection::kNone;
  rest(i, refused || objects ? kLongPause : kShortPause);
}

void Inquiry::add_poll_fds(std::vector<pollfd>& fds) const {
  for (const Caller& caller : callers_) {
    if (caller.channel && caller.channel->fd() >= 0)
      fds.push_back({caller.channel->fd(), caller.channel->wanted(), 0});
  }
}

void Inquiry::handle(const std::vector<pollfd>&) {
  turn_ = Clock::now();
  for (std::size_t i = 0; i < asked(); ++i) {  // some may turn out to have exited
    if (callers_[i].channel) listen(i);
    if (turn_ < callers_[i].next) continue;
    if (callers_[i].channel) {
      rest(i, kShortPause);
    } else {
      ask(i);
    }
  }
}

std::optional<Clock::time_point> Inquiry::deadline() const {
  std::optional<Clock::time_point> next;
  const std::size_t count = asked();
  if (count < findings_.size() && Clock::now() < began_ + kSlow) next = began_ + kSlow;
  for (std::size_t i = 0; i < count; ++i) next = earlier(next, callers_[i].next);
  return next;
}

}  // namespace ddp::launch
