// A client of an etcd cluster's JSON gateway: one call at a time and one watch, at the first of the
// endpoints that serves. Resolves names, logs in, goes to the next endpoint after a failure. Runs
// in the poll loop and never blocks; repeating calls is up to their owner.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/system/poll_handler.h"
#include "launcher/etcd/etcd_settings.h"
#include "launcher/etcd/http_thread.h"
#include "launcher/rendezvous/wire/endpoint_lookup.h"

namespace ddp::launch {

class EtcdClient : public PollHandler {
 public:
  struct Reply {
    bool ok = false;
    std::string body{};
    std::string problem{};  // not ok: the call may have been carried out, unless etcd refused it
  };

  /// Throws LaunchError if a certificate cannot be used.
  explicit EtcdClient(const EtcdSettings& settings);

  /// Whether a call is in progress or, after failures, must wait.
  bool busy() const { return call_.has_value() || Clock::now() < rests_until_; }
  /// `path`: "/v3/kv/range". Not while busy().
  void call(std::string path, std::string body);
  std::optional<Reply> take_reply() { return std::exchange(reply_, std::nullopt); }

  /// Starts or restarts a watch of every change after `revision`. It ends with a change or with its
  /// connection; to its owner both are changes.
  void watch(const std::string& prefix, std::int64_t revision);
  void end_watch();
  bool watches() const { return watch_ != 0; }
  bool take_change() { return std::exchange(changed_, false); }

  /// Since when no endpoint has replied; nullopt: one does, or none was queried.
  const std::optional<Clock::time_point>& down_since() const { return down_since_; }
  /// "10.0.0.1:2379: Connection refused".
  const std::string& problem() const { return problem_; }
  /// Whether the problem would recur: a wrong certificate, password or server.
  bool problem_is_final() const { return final_; }
  std::string endpoints() const { return endpoints_text(settings_.endpoints); }
  /// This machine's address in the last connection; empty: there was none.
  const std::string& own_address() const { return own_address_; }

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  enum class Stage { kLookUp, kCheck, kLogIn, kCall };
  struct Call {
    std::string path;
    std::string body;
    Stage stage = Stage::kLookUp;
    int request = 0;
  };
  struct Server {
    std::string host;
    std::string address;
    int port = 0;
    bool checked = false;
  };

  Server& server() { return servers_[current_]; }
  void take_addresses();
  void advance();
  int send(std::string path, std::string body, bool stream);
  void absorb(const HttpReply& reply);
  void absorb_watch(const HttpReply& reply);
  void check(const HttpReply& reply);
  void log_in(const HttpReply& reply);
  void finish(const HttpReply& reply);
  void answered();
  void refuse(const std::string& why);
  void fail(const std::string& why, bool final, bool other_server);

  EtcdSettings settings_;
  HttpThread http_;
  std::optional<EndpointLookup> lookup_;
  std::vector<Server> servers_;
  std::size_t current_ = 0;
  std::string token_;
  std::optional<Call> call_;
  std::optional<Reply> reply_;
  int watch_ = 0;  // its request
  bool changed_ = false;
  std::size_t failures_ = 0;  // consecutive
  Clock::time_point rests_until_{};
  std::optional<Clock::time_point> down_since_;
  std::string problem_;
  bool final_ = false;
  std::string own_address_;
};

}  // namespace ddp::launch
