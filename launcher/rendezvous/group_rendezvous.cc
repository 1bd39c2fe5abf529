#include "launcher/rendezvous/group_rendezvous.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/sockets.h"
#include "launcher/base/text.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr std::chrono::milliseconds kConnectPatience{3'000};
constexpr std::chrono::milliseconds kFirstRetry{20};
constexpr std::chrono::milliseconds kLongestRetry{250};
constexpr auto kNoteAfter = std::chrono::seconds(5);
// The host closes its connections when it ends; more of them in a row are a foreign program's.
constexpr int kForeign = 4;
constexpr auto kSeeOff = std::chrono::seconds(5);
constexpr std::chrono::milliseconds kProbeAfter{200};

std::string bracketed(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

bool is_wildcard(const std::string& address) { return address == "0.0.0.0" || address == "::"; }

std::string random_name() {
  std::uint64_t bits = 0;
  [[maybe_unused]] const auto filled = ::getrandom(&bits, sizeof bits, 0);
  return fmt::format("{:016x}", bits);
}

JobNews news_of(JobNews::Kind kind, std::string text) {
  JobNews news;
  news.kind = kind;
  news.text = std::move(text);
  return news;
}

ProcessFailure job_failure(const std::string& cause) {
  return {.local_rank = ProcessFailure::kNoRank,
          .rank = ProcessFailure::kNoRank,
          .exit = {kExitFailed, 0},
          .cause = cause,
          .time = unix_seconds()};
}

}  // namespace

GroupRendezvous::GroupRendezvous(GroupSettings settings)
    : settings_(std::move(settings)), id_(random_name()) {
  const bool shares_port = settings_.rules.fixed_ranks && !settings_.rank0_store;
  if (!shares_port) settings_.rules.master_port = 0;
}

GroupRendezvous::~GroupRendezvous() {
  if (channel_) channel_->finish_sending();
  if (coordinator_) {
    // Its own agent's last words come first.
    coordinator_->handle({});
    channel_.reset();
    if (coordinator_->over()) coordinator_->see_off(Clock::now() + kSeeOff);
  }
  if (succession_socket_ >= 0) ::close(succession_socket_);
  close_store_socket();
}

std::string GroupRendezvous::endpoint_text() const {
  return fmt::format("{}:{}", bracketed(settings_.host), settings_.port);
}

// ---- finding the host -------------------------------------------------------------------------

void GroupRendezvous::join() {
  wants_round_ = true;
  if (stage_ == Stage::Open) return send_join();
  if (stage_ == Stage::Idle) look_up();
  if (stage_ == Stage::Orphaned) follow();
}

void GroupRendezvous::look_up() {
  following_ = false;
  give_up_at_ = Clock::now() + settings_.connect_timeout;
  retry_delay_ = kFirstRetry;
  stage_ = Stage::LookingUp;
  lookup_.emplace(settings_.host);
  if (lookup_->done()) take_addresses();
}

void GroupRendezvous::take_addresses() {
  candidates_.clear();
  for (const std::string& address : lookup_->addresses())
    candidates_.push_back({address, settings_.port});
  lookup_.reset();
  if (candidates_.empty()) {
    last_problem_ = fmt::format("the name '{}' is not known", settings_.host);
    retry_at_ = Clock::now() + kLongestRetry;  // names of a cluster may appear late
    return;
  }
  seek();
}

void GroupRendezvous::seek() {
  stage_ = Stage::Seeking;
  next_candidate_ = 0;
  if (!following_ && !coordinator_ && try_to_host()) return;
  seek_next();
}

// True: this agent is the host now.
bool GroupRendezvous::try_to_host() {
  const bool fixed = settings_.rules.fixed_ranks;
  const bool must = fixed ? settings_.node_rank == 0 : settings_.is_host.value_or(false);
  if (!must && (fixed || settings_.is_host == false)) return false;
  std::vector<int> listeners;
  bool taken = false;
  for (const Candidate& candidate : candidates_) {
    const auto address = parse_address(candidate.address, candidate.port);
    const int fd = address ? listen_on(*address) : -1;
    if (fd >= 0) listeners.push_back(fd);
    taken = taken || (fd < 0 && errno == EADDRINUSE);
  }
  // The endpoint's address may be another one than this machine's own: a service, a translated one.
  if (listeners.empty() && must && !taken) {
    for (const char* any : {"::", "0.0.0.0"}) {
      const int fd = listen_on(*parse_address(any, settings_.port));
      if (fd >= 0) listeners.push_back(fd);
      if (fd >= 0) break;
      taken = taken || errno == EADDRINUSE;
    }
    candidates_ = {{listeners.empty() ? "127.0.0.1" : "::1", settings_.port},
                   {"127.0.0.1", settings_.port}};
    if (settings_.local_addr.empty()) settings_.local_addr = settings_.host;
  }
  if (listeners.empty() && must && taken) {
    throw LaunchError(kExitFailed,
                      fmt::format("cannot host the rendezvous at {}: {}; choose another port",
                                  endpoint_text(), error_text(EADDRINUSE)));
  }
  if (listeners.empty()) return false;
  host({}, std::move(listeners));
  return true;
}

void GroupRendezvous::host(JobHistory history, std::vector<int> listeners) {
  MembershipRules rules = settings_.rules;
  rules.host_id = id_;
  Coordinator::StoreClients store_clients;
  if (rules.master_port > 0) store_clients = [this](int fd) { store_.adopt(fd); };
  coordinator_ = std::make_unique<Coordinator>(rules, std::move(history), settings_.token,
                                               std::move(listeners), std::move(store_clients));
  seek_next();
}

void GroupRendezvous::seek_next() {
  retry_at_.reset();
  if (next_candidate_ < candidates_.size()) {
    const Candidate candidate = candidates_[next_candidate_++];
    if (candidate.is_me && !coordinator_) return take_over();
    return connect(candidate);
  }
  if (following_) return tell_end(lost_text_ + "; no other node could take over the rendezvous");
  // The host may have gone, so look again; its name may have got another address.
  retry_at_ = Clock::now() + retry_delay_;
  retry_delay_ = std::min(2 * retry_delay_, kLongestRetry);
}

void GroupRendezvous::connect(const Candidate& candidate) {
  present_ = candidate;
  if (is_wildcard(candidate.address))
    present_.address = candidate.address == "::" ? "::1" : "127.0.0.1";
  const auto address = parse_address(present_.address, present_.port);
  const int fd = address ? begin_connect(*address) : -1;
  if (fd < 0) return attempt_failed(error_text(errno));
  stage_ = Stage::Greeting;
  attempt_ends_ =
      Clock::now() + (following_ ? std::min(kConnectPatience, patience_) : kConnectPatience);
  channel_ = std::make_unique<ControlChannel>(fd, ControlChannel::Side::Agent, settings_.token);
  if (!last_round_ && !coordinator_) probe_at_ = Clock::now() + kProbeAfter;
}

void GroupRendezvous::attempt_failed(const std::string& why) {
  last_problem_ = fmt::format("{}:{}: {}", bracketed(present_.address), present_.port, why);
  channel_.reset();
  attempt_ends_.reset();
  probe_at_.reset();
  if (foreign_closes_ < 2) probe_.reset();
  stage_ = Stage::Seeking;
  seek_next();
}

void GroupRendezvous::say_hello() {
  if (succession_socket_ < 0) {
    const std::string local = channel_->local_address();
    const auto address = parse_address(local, 0);
    succession_socket_ = address ? listen_on(*address) : -1;
    if (succession_socket_ >= 0) succession_port_ = port_of(succession_socket_);
  }
  channel_->send(Hello{.id = id_,
                       .run_id = settings_.rules.run_id,
                       .min_nodes = settings_.rules.min_nodes,
                       .max_nodes = settings_.rules.max_nodes,
                       .node_rank = settings_.node_rank,
                       .host = settings_.host_name,
                       .address = settings_.local_addr,
                       .pid = ::getpid(),
                       .local_world_size = settings_.local_world_size,
                       .role = settings_.role,
                       .max_restarts = settings_.rules.restarts.max_restarts,
                       .port = succession_port_});
}

void GroupRendezvous::enter(const ControlMessage& message) {
  if (const auto* refused = std::get_if<Refused>(&message)) return refuse(refused->why);
  const auto* welcome = std::get_if<Welcome>(&message);
  if (welcome == nullptr) return;
  own_node_ = welcome->node;
  heartbeat_ = welcome->heartbeat;
  patience_ = welcome->patience;
  stage_ = Stage::Open;
  attempt_ends_.reset();
  probe_at_.reset();
  probe_.reset();
  retry_delay_ = kFirstRetry;
  foreign_closes_ = 0;
  following_ = false;
  if (wants_round_) send_join();
}

void GroupRendezvous::refuse(const std::string& why) {
  const std::string text = fmt::format("the rendezvous at {}:{} refused this node: {}",
                                       bracketed(present_.address), present_.port, why);
  if (!last_round_) throw LaunchError(kExitFailed, text);
  tell_end(text);
}

// ---- a job's course ---------------------------------------------------------------------------

void GroupRendezvous::send_join() { channel_->send(Join{prepare_store()}); }

// The port of the store, should this node be the first. Each round has its own, so that late
// packets of the old round reach no one.
int GroupRendezvous::prepare_store() {
  close_store_socket();
  if (settings_.rank0_store) {
    store_port_.emplace(0);
    return store_port_->port();
  }
  if (settings_.rules.master_port > 0) return settings_.rules.master_port;
  const auto address = parse_address(channel_->local_address(), 0);
  store_socket_ = address ? listen_on(*address) : -1;
  if (store_socket_ < 0)
    throw LaunchError(kExitFailed, "cannot listen for the workers' store: " + error_text(errno));
  return port_of(store_socket_);
}

void GroupRendezvous::close_store_socket() {
  if (store_socket_ >= 0) ::close(std::exchange(store_socket_, -1));
}

void GroupRendezvous::accept_store_clients() {
  for (;;) {
    const int fd = ::accept4(store_socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    store_.adopt(fd);
  }
}

void GroupRendezvous::report_failure(const ProcessFailure& failure) {
  if (stage_ == Stage::Open && in_round_) channel_->send(Failed{failure});
}

void GroupRendezvous::report_end(NodeEnd end) {
  in_round_ = false;
  last_end_ = std::move(end);
  if (stage_ == Stage::Open)
    channel_->send(Ended{last_end_.failures, last_end_.stopped, last_end_.preempted});
  if (stage_ == Stage::Orphaned && settings_.rules.fixed_ranks) return tell_end(lost_text_);
  if (stage_ == Stage::Orphaned) {
    JobNews news = news_of(JobNews::Kind::Restart, "looking for the next host of the rendezvous");
    store_.clear();
    news.verdict.restart = true;
    tell(std::move(news));
  }
}

void GroupRendezvous::leave(int signal) {
  if (coordinator_) coordinator_->retire();
  if (stage_ == Stage::Open) channel_->send(Leave{signal});
}

std::optional<JobNews> GroupRendezvous::take_news() {
  if (news_.empty()) return std::nullopt;
  JobNews news = std::move(news_.front());
  news_.pop_front();
  return news;
}

void GroupRendezvous::receive(const ControlMessage& message) {
  heard_ = Clock::now();
  if (stage_ == Stage::Greeting) return enter(message);
  if (const auto* m = std::get_if<Refused>(&message)) return lose_host(m->why, /*gone=*/false);
  if (const auto* m = std::get_if<Round>(&message)) receive(*m);
  if (const auto* m = std::get_if<Verdict>(&message)) receive(*m);
  if (const auto* m = std::get_if<Note>(&message)) tell(news_of(JobNews::Kind::Note, m->text));
  if (const auto* m = std::get_if<Stop>(&message); m && in_round_) {
    JobNews news = news_of(JobNews::Kind::Stop, m->text);
    news.leaving = m->leaving;
    tell(std::move(news));
  }
}

void GroupRendezvous::receive(const Round& round) {
  last_round_ = round;
  wants_round_ = false;
  in_round_ = true;
  if (round.info.group_rank != 0) {
    store_port_.reset();
    close_store_socket();
  }
  JobNews news;
  news.round = round.info;
  news.round.agent_store = !settings_.rank0_store;
  tell(std::move(news));
}

void GroupRendezvous::receive(const Verdict& verdict) {
  JobNews news = news_of(verdict.over ? JobNews::Kind::End : JobNews::Kind::Restart, verdict.text);
  news.verdict = verdict.verdict;
  news.failures = verdict.failures;
  news.outcome = verdict.outcome;
  for (ProcessFailure& failure : news.failures) {
    const bool own = std::any_of(last_end_.failures.begin(), last_end_.failures.end(),
                                 [&](const ProcessFailure& mine) {
                                   return failure.host == settings_.host_name &&
                                          mine.pid == failure.pid && mine.rank == failure.rank;
                                 });
    if (own) failure.host.clear();
  }
  // All workers of the round have ended, and none of the next can have begun.
  if (!verdict.over) store_.clear();
  if (verdict.over) stage_ = Stage::Over;
  tell(std::move(news));
}

void GroupRendezvous::tell_end(const std::string& why) {
  stage_ = Stage::Over;
  JobNews news = news_of(JobNews::Kind::End, "");
  news.failures = {job_failure(why)};
  news.outcome = Outcome::Failed;
  tell(std::move(news));
}

// ---- nodes that run torchrun ------------------------------------------------------------------

// A host of ddp-run that answers as a store has answered as a rendezvous before: both are served by
// one loop, and the rendezvous was asked first.
void GroupRendezvous::look_for_torchrun(const std::vector<pollfd>& fds) {
  const bool unanswered =
      stage_ == Stage::Greeting && channel_ && channel_->state() == ControlChannel::State::Greeting;
  const bool turned_away = foreign_closes_ >= 2;  // by node 0, which has found torchrun's agents
  if (turned_away && !probe_ && settings_.rules.fixed_ranks) probe_at_ = Clock::now();
  if (probe_at_ && Clock::now() >= *probe_at_) {
    probe_at_.reset();
    if (unanswered || turned_away)
      probe_ = std::make_unique<TcpStoreClient>(present_.address, present_.port);
  }
  if (probe_) probe_->handle(fds);
  if (probe_ && (unanswered || turned_away) && probe_->state() == TcpStoreClient::State::Open)
    host_is_torchruns();
  // torchrun's agents that have come here say what workers they have.
  const auto role = fmt::format("/{}/torchelastic/role_info/", settings_.rules.run_id);
  if (coordinator_ && settings_.rules.master_port > 0 && store_.has_key_with(role))
    found_torchrun_ = true;
}

void GroupRendezvous::host_is_torchruns() {
  const bool shares_port = settings_.rules.fixed_ranks && !settings_.rank0_store;
  if (shares_port && settings_.token.empty()) {
    found_torchrun_ = true;
    return;
  }
  throw LaunchError(
      kExitFailed,
      fmt::format("the server at {} is a TCPStore and no rendezvous of ddp-run (torchrun's agent, "
                  "perhaps): only a static job without --rdzv-token-file and --store=rank0 can "
                  "have nodes of both",
                  endpoint_text()));
}

void GroupRendezvous::only_serve_store() {
  stage_ = Stage::Over;
  channel_.reset();
  attempt_ends_.reset();
  retry_at_.reset();
  coordinator_->only_serve_store();
}

// One connection is this node's own.
void GroupRendezvous::see_off_torchrun(Clock::time_point limit) {
  while (store_.connections() > 1 && Clock::now() < limit) {
    std::vector<pollfd> fds;
    add_poll_fds(fds);
    ::poll(fds.data(), fds.size(), 50);
    handle(fds);
  }
}

// ---- the loss of the host ---------------------------------------------------------------------

void GroupRendezvous::lose_host(const std::string& why, bool gone) {
  channel_.reset();
  lost_text_ = fmt::format("the host of the rendezvous, {}:{}, was lost: {}",
                           bracketed(present_.address), present_.port, why);
  host_is_gone_ = gone;
  if (!last_round_) {
    stage_ = Stage::Idle;
    return look_up();
  }
  stage_ = Stage::Orphaned;
  if (in_round_)
    return tell(news_of(JobNews::Kind::Stop, lost_text_ + "; the workers here are stopped"));
  if (settings_.rules.fixed_ranks) return tell_end(lost_text_);
  if (wants_round_) return follow();
  report_end(last_end_);
}

// The old host first: it may only have been slow.
void GroupRendezvous::follow() {
  following_ = true;
  candidates_.clear();
  if (!host_is_gone_) candidates_.push_back({present_.address, present_.port});
  for (const Successor& one : last_round_->successors)
    candidates_.push_back({one.address, one.port, one.node == own_node_});
  seek();
}

void GroupRendezvous::take_over() {
  JobHistory history{.rounds = last_round_->info.restart_count + 1, .ends = last_round_->history};
  for (const Successor& one : last_round_->successors)
    history.order.emplace_back(one.address, one.port);
  history.expected = static_cast<int>(last_round_->successors.size());
  // An old host that is only silent may be at work with the other half of the nodes.
  if (!host_is_gone_) history.quorum = last_round_->info.group_world_size / 2 + 1;
  tell(news_of(JobNews::Kind::Note, "this node hosts the rendezvous from now on"));
  candidates_ = {candidates_[next_candidate_ - 1]};
  candidates_.front().is_me = false;
  next_candidate_ = 0;
  std::vector<int> listeners{std::exchange(succession_socket_, -1)};
  if (const auto address = parse_address(settings_.host, settings_.port)) {
    if (const int fd = listen_on(*address); fd >= 0) listeners.push_back(fd);
  }
  host(std::move(history), std::move(listeners));
}

// ---- the loop ---------------------------------------------------------------------------------

void GroupRendezvous::add_poll_fds(std::vector<pollfd>& fds) const {
  if (lookup_ && !lookup_->done()) fds.push_back({lookup_->fd(), POLLIN, 0});
  if (coordinator_) coordinator_->add_poll_fds(fds);
  store_.add_poll_fds(fds);
  if (store_socket_ >= 0) fds.push_back({store_socket_, POLLIN, 0});
  if (channel_ && channel_->fd() >= 0) fds.push_back({channel_->fd(), channel_->wanted(), 0});
  if (probe_) probe_->add_poll_fds(fds);
}

void GroupRendezvous::handle(const std::vector<pollfd>& fds) {
  if (lookup_ && !lookup_->done()) {
    lookup_->handle();
    if (lookup_->done()) take_addresses();
  }
  if (coordinator_) {
    coordinator_->handle(fds);
    if (const std::string note = coordinator_->take_note(); !note.empty())
      tell(news_of(JobNews::Kind::Note, note));
  }
  if (store_socket_ >= 0) accept_store_clients();
  store_.handle(fds);
  if (channel_) handle_channel();
  if (!last_round_) look_for_torchrun(fds);
  keep_time();
}

void GroupRendezvous::handle_channel() {
  const bool greeted = channel_->state() == ControlChannel::State::Open;
  channel_->handle();
  if (!greeted && channel_->state() == ControlChannel::State::Open) {
    heard_ = next_beat_ = Clock::now();
    say_hello();
  }
  while (channel_ && stage_ != Stage::Over) {
    const auto message = channel_->take();
    if (!message) break;
    receive(*message);
  }
  if (!channel_ || channel_->state() != ControlChannel::State::Closed || stage_ == Stage::Over)
    return;
  const std::string why = channel_->peer_is_gone() ? "its ddp-run is gone" : channel_->problem();
  if (stage_ == Stage::Open) return lose_host(why, channel_->peer_is_gone());
  const bool refused = channel_->problem() == error_text(ECONNREFUSED);
  if (!refused && channel_->peer_is_gone()) ++foreign_closes_;
  if (foreign_closes_ >= (settings_.rules.fixed_ranks ? 3 : 1) * kForeign && !last_round_) {
    throw LaunchError(
        kExitFailed, fmt::format("the server at {} closes the connection: it is no rendezvous of "
                                 "ddp-run (torchrun's agent, perhaps: all nodes of a c10d job must "
                                 "run ddp-run)",
                                 endpoint_text()));
  }
  if (!refused && !channel_->peer_is_gone()) {
    if (!last_round_ && channel_->problem().starts_with("authentication"))
      throw LaunchError(kExitFailed, endpoint_text() + ": " + channel_->problem());
  }
  attempt_failed(channel_->problem());
}

void GroupRendezvous::keep_time() {
  const auto now = Clock::now();
  if (stage_ == Stage::Open) {
    if (now >= next_beat_) {
      channel_->send(Alive{});
      next_beat_ = now + heartbeat_;
    }
    if (now - heard_ >= patience_) {
      lose_host(fmt::format("nothing was heard of it for {}", seconds_text(patience_)),
                /*gone=*/false);
    }
    return;
  }
  if (attempt_ends_ && now >= *attempt_ends_) return attempt_failed("no answer");
  if (stage_ != Stage::LookingUp && stage_ != Stage::Seeking && stage_ != Stage::Greeting) return;
  if (following_) return;
  if (now >= give_up_at_) {
    throw LaunchError(
        kExitFailed,
        fmt::format("cannot reach the rendezvous at {} within {}: {}; check the address, that "
                    "ddp-run is running there, and that the port is not blocked",
                    endpoint_text(), seconds_text(settings_.connect_timeout), last_problem_));
  }
  if (!waiting_noted_ && now >= give_up_at_ - settings_.connect_timeout + kNoteAfter) {
    waiting_noted_ = true;
    tell(news_of(JobNews::Kind::Note, fmt::format("waiting for the rendezvous at {} ({})",
                                                  endpoint_text(), last_problem_)));
  }
  if (retry_at_ && now >= *retry_at_) {
    retry_at_.reset();
    if (stage_ == Stage::LookingUp || next_candidate_ >= candidates_.size()) {
      lookup_.emplace(settings_.host);
      stage_ = Stage::LookingUp;
      if (lookup_->done()) take_addresses();
    }
  }
}

std::optional<Clock::time_point> GroupRendezvous::deadline() const {
  std::optional<Clock::time_point> next;
  const auto consider = [&](std::optional<Clock::time_point> time) {
    if (time && (!next || *time < *next)) next = time;
  };
  if (coordinator_) consider(coordinator_->deadline());
  if (stage_ == Stage::Open) consider(next_beat_);
  if (stage_ == Stage::Open) consider(heard_ + patience_);
  consider(attempt_ends_);
  consider(retry_at_);
  consider(probe_at_);
  if (probe_) consider(probe_->deadline());
  const bool seeking = stage_ == Stage::LookingUp || stage_ == Stage::Seeking ||
                       (stage_ == Stage::Greeting && !following_);
  if (seeking && !following_) {
    consider(give_up_at_);
    if (!waiting_noted_) consider(give_up_at_ - settings_.connect_timeout + kNoteAfter);
  }
  return next;
}

}  // namespace ddp::launch
