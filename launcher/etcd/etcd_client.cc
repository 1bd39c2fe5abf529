#include "launcher/etcd/etcd_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "launcher/base/text.h"
#include "launcher/etcd/gateway.h"

namespace ddp::launch {
namespace {

constexpr std::chrono::milliseconds kShortestRest{50};
constexpr std::chrono::milliseconds kLongestRest{2'000};
// A server without a quorum answers after 7 s: another one may have it.
constexpr std::chrono::milliseconds kPatience{3'000};

std::optional<TlsFiles> files_of(const EtcdSettings& settings) {
  if (!settings.tls) return std::nullopt;
  return TlsFiles{settings.ca_file, settings.cert_file, settings.key_file};
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

std::string explained(const std::string& problem, bool tls) {
  if (contains(problem, "wrong version number"))
    return "it does not speak TLS (--rdzv-conf=protocol=http)";
  const bool closed = !tls && problem == "it closed the connection";
  return closed ? problem + " (does it serve TLS? --rdzv-conf=protocol=https)" : problem;
}

}  // namespace

EtcdClient::EtcdClient(const EtcdSettings& settings)
    : settings_(settings), http_(files_of(settings)) {}

void EtcdClient::call(std::string path, std::string body) {
  call_ = {.path = std::move(path), .body = std::move(body)};
  advance();
}

// Goes on with the call as far as is possible without an answer.
void EtcdClient::advance() {
  if (servers_.empty()) {
    lookup_.emplace(settings_.endpoints);
    call_->stage = Stage::kLookUp;
    if (lookup_->done()) take_addresses();
    return;
  }
  if (!server().checked) {
    call_->stage = Stage::kCheck;
    call_->request = send("/version", "", /*stream=*/false);
  } else if (!settings_.user.empty() && token_.empty()) {
    call_->stage = Stage::kLogIn;
    call_->request = send("/v3/auth/authenticate",
                          login_request(settings_.user, settings_.password), /*stream=*/false);
  } else {
    call_->stage = Stage::kCall;
    call_->request = send(call_->path, call_->body, /*stream=*/false);
  }
}

int EtcdClient::send(std::string path, std::string body, bool stream) {
  return http_.send({.host = server().host,
                     .address = server().address,
                     .port = server().port,
                     .path = std::move(path),
                     .body = std::move(body),
                     .token = token_,
                     .timeout = kPatience,
                     .stream = stream});
}

void EtcdClient::take_addresses() {
  std::string unknown;
  for (const ResolvedEndpoint& one : lookup_->results()) {
    for (const std::string& address : one.addresses)
      servers_.push_back({one.endpoint.host, address, one.endpoint.port});
    if (one.addresses.empty()) unknown = one.endpoint.host;
  }
  lookup_.reset();
  current_ = 0;
  if (!servers_.empty()) return advance();
  fail(fmt::format("the name '{}' is not known", unknown), /*final=*/false, /*other_server=*/true);
}

void EtcdClient::watch(const std::string& prefix, std::int64_t revision) {
  end_watch();
  if (!servers_.empty()) watch_ = send("/v3/watch", watch_request(prefix, revision), true);
}

void EtcdClient::end_watch() {
  if (watch_ != 0) http_.cancel(std::exchange(watch_, 0));
}

void EtcdClient::absorb_watch(const HttpReply& reply) {
  const bool event = reply.kind == HttpReply::Kind::kLine && watch_continues(reply.body);
  if (event && !contains(reply.body, "\"events\"")) return;  // it has begun
  changed_ = true;
  end_watch();
}

void EtcdClient::absorb(const HttpReply& reply) {
  if (reply.id == watch_) return absorb_watch(reply);
  if (!call_ || reply.id != call_->request) return;
  if (!reply.local_address.empty()) own_address_ = reply.local_address;
  if (reply.kind == HttpReply::Kind::kFailed) {
    return fail(explained(reply.problem, settings_.tls),
                reply.problem.starts_with("TLS") || contains(reply.problem, "HTTP"), true);
  }
  if (call_->stage == Stage::kCheck) return check(reply);
  if (call_->stage == Stage::kLogIn) return log_in(reply);
  finish(reply);
}

void EtcdClient::check(const HttpReply& reply) {
  if (contains(reply.body, "HTTP request to an HTTPS server"))
    return fail("it serves TLS only (--rdzv-conf=protocol=https)", true, true);
  const auto version = parse_version(reply.body);
  if (!version) return fail("it is not an etcd", true, true);
  if (!has_gateway(*version)) {
    return fail(
        fmt::format("it is etcd {}; API v3 of etcd 3.4 or newer is needed", printable(*version)),
        true, true);
  }
  server().checked = true;
  advance();
}

void EtcdClient::log_in(const HttpReply& reply) {
  const auto token = parse_token(reply.body);
  if (reply.status == 200 && token) {
    token_ = *token;
    return advance();
  }
  const std::string why = parse_problem(reply.body);
  const bool wrong = reply.status < 500;
  fail(fmt::format("user '{}': {}", settings_.user, why.empty() ? "cannot log in" : why), wrong,
       /*other_server=*/!wrong);
}

void EtcdClient::finish(const HttpReply& reply) {
  if (reply.status == 200) {
    answered();
    reply_ = {.ok = true, .body = reply.body};
    return;
  }
  std::string why = parse_problem(reply.body);
  if (reply.status == 404 && why.empty())
    return fail("its JSON gateway is off (etcd --enable-grpc-gateway)", true, true);
  if (contains(why, "auth token")) token_.clear();
  if (contains(why, "user name is empty"))
    return fail("it needs a user (--rdzv-conf=user=NAME,password_file=FILE)", true, false);
  if (contains(why, "permission denied"))
    return fail(fmt::format("user '{}' may not use keys below {}/: {}", settings_.user,
                            settings_.prefix, why),
                true, false);
  if (reply.status < 500 && !why.empty() && !contains(why, "auth token")) return refuse(why);
  if (why.empty()) why = fmt::format("HTTP status {}", reply.status);
  fail(printable(why), false, reply.status >= 500);
}

void EtcdClient::answered() {
  failures_ = 0;
  down_since_.reset();
  problem_.clear();
  final_ = false;
  call_.reset();
}

// An answer, though not the one that was hoped for.
void EtcdClient::refuse(const std::string& why) {
  answered();
  rests_until_ = Clock::now() + kShortestRest;
  reply_ = {.problem = why};
}

void EtcdClient::fail(const std::string& why, bool final, bool other_server) {
  const std::string place =
      servers_.empty() ? endpoints() : place_text(server().host, server().port);
  problem_ = fmt::format("{}: {}", place, why);
  final_ = final;
  call_.reset();
  reply_ = {.problem = why};
  const auto now = Clock::now();
  ++failures_;
  const auto rounds = failures_ / std::max<std::size_t>(servers_.size(), 1);
  if (rounds > 0 || !other_server) {
    rests_until_ =
        now + std::min(kShortestRest * (1 << std::min<std::size_t>(rounds, 6)), kLongestRest);
  }
  if ((rounds > 0 || !other_server) && !down_since_) down_since_ = now;
  if (!other_server) return;
  // An address may have changed: all names are looked up again once each was tried.
  if (++current_ >= servers_.size()) servers_.clear();
}

void EtcdClient::add_poll_fds(std::vector<pollfd>& fds) const {
  fds.push_back({http_.fd(), POLLIN, 0});
  if (lookup_) lookup_->add_poll_fds(fds);
}

void EtcdClient::handle(const std::vector<pollfd>& fds) {
  if (lookup_) {
    lookup_->handle(fds);
    if (lookup_->done()) take_addresses();
  }
  for (const HttpReply& reply : http_.take()) absorb(reply);
}

std::optional<Clock::time_point> EtcdClient::deadline() const {
  if (call_ || Clock::now() >= rests_until_) return std::nullopt;
  return rests_until_;
}

}  // namespace ddp::launch
