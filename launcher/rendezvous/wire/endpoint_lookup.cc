#include "launcher/rendezvous/wire/endpoint_lookup.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace ddp::launch {
namespace {

// While nothing changes the pauses grow: each lookup of a name is a process.
constexpr std::chrono::milliseconds kLookupPause{500};
constexpr std::chrono::milliseconds kLongestWatchPause{15'000};

}  // namespace

EndpointLookup::EndpointLookup(const std::vector<Endpoint>& endpoints) : endpoints_(endpoints) {
  for (const Endpoint& one : endpoints_) lookups_.push_back(std::make_unique<NameLookup>(one.host));
}

bool EndpointLookup::done() const {
  return std::all_of(lookups_.begin(), lookups_.end(),
                     [](const auto& lookup) { return lookup->done(); });
}

std::vector<ResolvedEndpoint> EndpointLookup::results() const {
  std::vector<ResolvedEndpoint> results;
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    results.push_back({endpoints_[i], lookups_[i]->addresses(), lookups_[i]->lacks_getent()});
    // Debian's /etc/hosts gives a machine's own name an address of the loopback.
    auto& addresses = results.back().addresses;
    if (!is_localhost(endpoints_[i].host))
      std::stable_partition(addresses.begin(), addresses.end(), std::not_fn(is_loopback));
  }
  return results;
}

void EndpointLookup::add_poll_fds(std::vector<pollfd>& fds) const {
  for (const auto& lookup : lookups_) {
    if (!lookup->done()) fds.push_back({lookup->fd(), POLLIN, 0});
  }
}

void EndpointLookup::handle(const std::vector<pollfd>&) {
  for (const auto& lookup : lookups_) {
    if (!lookup->done()) lookup->handle();
  }
}

EndpointWatch::EndpointWatch(std::vector<Endpoint> endpoints)
    : endpoints_(std::move(endpoints)), unknown_since_(endpoints_.size()), pause_(kLookupPause) {}

void EndpointWatch::set(std::vector<ResolvedEndpoint> resolved) {
  for (std::size_t i = 0; i < resolved.size(); ++i) {
    if (!resolved[i].addresses.empty()) unknown_since_[i].reset();
    if (resolved[i].addresses.empty() && !unknown_since_[i]) unknown_since_[i] = Clock::now();
  }
  const bool same = resolved == resolved_;
  pause_ = same ? std::min(2 * pause_, kLongestWatchPause) : kLookupPause;
  changed_ = changed_ || !same;
  resolved_ = std::move(resolved);
  next_ = Clock::now() + pause_;
}

std::string EndpointWatch::unknown() const {
  std::string text;
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    if (!unknown_since_[i] || Clock::now() - *unknown_since_[i] >= kUnknown) continue;
    text += (text.empty() ? "" : ", ") + endpoints_[i].host;
  }
  return text;
}

void EndpointWatch::add_poll_fds(std::vector<pollfd>& fds) const {
  if (lookup_) lookup_->add_poll_fds(fds);
}

void EndpointWatch::handle(const std::vector<pollfd>& fds) {
  if (!lookup_ && Clock::now() < next_) return;
  if (!lookup_) lookup_.emplace(endpoints_);
  lookup_->handle(fds);
  if (!lookup_->done()) return;
  set(lookup_->results());
  lookup_.reset();
}

std::optional<Clock::time_point> EndpointWatch::deadline() const {
  return lookup_ ? std::nullopt : std::optional(next_);
}

std::string place_text(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

std::string endpoints_text(const std::vector<Endpoint>& endpoints) {
  std::string text;
  for (const Endpoint& one : endpoints)
    text += (text.empty() ? "" : ", ") + place_text(one.host, one.port);
  return text;
}

}  // namespace ddp::launch
