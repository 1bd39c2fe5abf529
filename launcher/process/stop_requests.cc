#include "launcher/process/stop_requests.h"

namespace ddp::launch {
namespace {

// `timeout` and some schedulers signal the process and its group; keyboard signals are never
// doubled.
constexpr auto kDouble = std::chrono::milliseconds(100);
// The parent forwards what it received, possibly after waiting for a CPU.
constexpr auto kPassedOnWithin = std::chrono::seconds(2);

}  // namespace

bool StopRequests::add(const SignalOrigin& origin, Clock::time_point now) {
  if (origin.sender == Sender::kDdpRun) {
    if (origin.count <= count_) return false;
    count_ = origin.count;
    counted_ = now;
    return true;
  }
  Way& way = origin.sender == Sender::kParent ? from_parent_ : from_others_;
  const bool may_be_double = way.requests > 0 && origin.sender != Sender::kKeyboard;
  if (may_be_double && (at_work_ || now - way.last < kDouble)) return false;
  way.last = now;
  if (way.requests < count_ && now - counted_ < kPassedOnWithin) {
    way.requests = count_;  // the other path was faster
    return false;
  }
  way.requests = ++count_;
  counted_ = now;
  at_work_ = true;
  return true;
}

}  // namespace ddp::launch
