#include "launcher/rendezvous/follow/newcomer.h"

#include <fmt/format.h>

#include "launcher/rendezvous/wire/endpoint_lookup.h"

namespace ddp::launch {
namespace {

using Found = Inquiry::Found;

}  // namespace

Newcomer::Newcomer(std::vector<Lead> leads, std::string id, long long epoch)
    : leads_(std::move(leads)), id_(std::move(id)), epoch_(epoch) {}

std::vector<Place> Newcomer::places() const {
  std::vector<Place> places;
  for (const Lead& lead : leads_) places.push_back(lead.place);
  return places;
}

Newcomer::Step Newcomer::next(const std::vector<Inquiry::Finding>& findings, bool alone,
                              Clock::time_point now) {
  const Inquiry::Finding* host = nullptr;      // it or its host hosts the newest round
  const Inquiry::Finding* electing = nullptr;  // it has lost its host
  const Inquiry::Finding* first = nullptr;     // a newcomer that precedes this one
  missing_.clear();
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const auto& one = findings[i];
    if (one.found == Found::kNothing || one.found == Found::kSilence) {
      missing_ += fmt::format("{}{}", missing_.empty() ? "" : ", ", place_text(one.place));
    }
    if (one.found != Found::kAnswer || is_own(one)) continue;
    const auto newer = [&](const Inquiry::Finding* than) {
      return !than || one.status.epoch > than->status.epoch;
    };
    if (one.status.has_host()) {
      host = newer(host) ? &one : host;
    } else if (one.status.epoch >= 0) {
      electing = newer(electing) ? &one : electing;
    } else if (leads_[i].precedes && !first) {
      first = &one;
    }
  }
  const bool all_heard = missing_.empty() || alone;
  if (host && (host->status.epoch >= epoch_ || all_heard))
    return avoided_.connect_to(place_of_host(*host), now);
  if (electing) return avoided_.connect_to(electing->place, now);
  if (!all_heard) return {};
  if (first) return avoided_.connect_to(first->place, now);
  return {Step::Kind::kHost, {}};
}

}  // namespace ddp::launch
