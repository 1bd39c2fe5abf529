// Resolves the endpoints of a job concurrently, without blocking. Each object performs one
// look-up.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/poll_handler.h"
#include "launcher/base/system/sockets.h"
#include "launcher/rendezvous/wire/place.h"

namespace ddp::launch {

/// Resolves a host name without blocking, with getent in a child process: the system's name
/// services (files, DNS, LDAP) are plug-ins of the C library, which a statically linked ddp-run
/// cannot load.
class NameLookup {
 public:
  explicit NameLookup(const std::string& host);
  ~NameLookup();

  /// Descriptor to poll for input; -1: done.
  int fd() const { return fd_.get(); }
  void handle();
  bool done() const { return fd() < 0; }
  /// Numeric addresses in order of preference; empty: the name is unknown.
  std::vector<std::string> addresses() const;
  /// Whether getent could not be started: only localhost is known then.
  bool lacks_getent() const { return lacks_getent_; }

 private:
  Descriptor fd_;
  int pid_ = 0;
  bool lacks_getent_ = false;
  std::string output_;
};

/// An endpoint and its numeric addresses in order of preference; none if the name is unknown.
struct ResolvedEndpoint {
  Endpoint endpoint;
  std::vector<std::string> addresses{};
  bool lacks_getent = false;  // names other than localhost cannot be resolved
  bool operator==(const ResolvedEndpoint& other) const {
    return endpoint.host == other.endpoint.host && endpoint.port == other.endpoint.port &&
           addresses == other.addresses;
  }
};

class EndpointLookup : public PollHandler {
 public:
  explicit EndpointLookup(const std::vector<Endpoint>& endpoints);

  bool done() const;
  /// In the order of the endpoints. Call when done().
  std::vector<ResolvedEndpoint> results() const;

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;

 private:
  std::vector<Endpoint> endpoints_;
  std::vector<std::unique_ptr<NameLookup>> lookups_;
};

/// Resolves them repeatedly while it is polled: a pod's name follows the pod.
class EndpointWatch : public PollHandler {
 public:
  explicit EndpointWatch(std::vector<Endpoint> endpoints);

  /// The latest results; empty before the first.
  const std::vector<ResolvedEndpoint>& endpoints() const { return resolved_; }
  /// Names that have been unknown for less than kUnknown: a name server may cache for so long that
  /// a name does not exist. Empty if there are none.
  std::string unknown() const;
  /// Returns, once, whether endpoints() has changed.
  bool take_change() { return std::exchange(changed_, false); }
  void set(std::vector<ResolvedEndpoint> resolved);

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

  static constexpr std::chrono::seconds kUnknown{30};

 private:
  std::vector<Endpoint> endpoints_;
  std::vector<ResolvedEndpoint> resolved_;
  std::vector<std::optional<Clock::time_point>> unknown_since_;
  std::optional<EndpointLookup> lookup_;
  std::chrono::milliseconds pause_;
  Clock::time_point next_{};
  bool changed_ = false;
};

/// "10.0.0.1:29400, node2:29400".
std::string endpoints_text(const std::vector<Endpoint>& endpoints);
/// "10.0.0.1:29400", "[fd00::1]:29400".
std::string place_text(const std::string& host, int port);
inline std::string place_text(const Place& place) { return place_text(place.address, place.port); }

}  // namespace ddp::launch
