// A minimal HTTP server for probes and scrapers: GET and HEAD, one request per connection, in the
// agent's poll loop. Requests, connections and the work per turn are bounded; never blocks.
// On a loopback address it only serves requests for this machine's own names: a web page whose
// name resolves to 127.0.0.1 (DNS rebinding) must not read the job's status through a browser. On
// other addresses it accepts any name, as the network's names are unknown.
#pragma once

#include <functional>
#include <list>
#include <optional>
#include <string>

#include "launcher/base/clock.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/poll_handler.h"
#include "launcher/base/system/sockets.h"
#include "launcher/report/job_status.h"

namespace ddp::launch {

class HttpServer : public PollHandler {
 public:
  using Responder = std::function<HttpAnswer(const std::string& path)>;

  /// Starts listening; port 0: any free port. Throws LaunchError (2) on failure.
  HttpServer(const Endpoint& endpoint, Responder responder);

  int port() const { return port_of(listener_.get()); }

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override { return rests_until_; }

 private:
  struct Connection {
    Descriptor fd;
    std::string request{};
    std::string answer{};  // what is left to send; not empty: the request is complete
  };

  void accept_some();
  void drop_oldest();
  bool refuse_one();
  bool serve(Connection& connection);  // false: close it
  std::string answer_to(const std::string& request) const;
  bool is_meant(const std::string& request) const;

  Responder responder_;
  Descriptor listener_;
  Descriptor reserve_;  // closed to refuse a connection when no descriptor is left
  std::optional<Clock::time_point> rests_until_;  // a connection could not even be refused
  bool loopback_only_ = false;
  std::list<Connection> connections_;
};

}  // namespace ddp::launch
