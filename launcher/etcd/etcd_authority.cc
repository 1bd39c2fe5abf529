#include "launcher/etcd/etcd_authority.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/rendezvous/round/epochs.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr std::chrono::milliseconds kAvoided{500};
constexpr auto kFarewell = std::chrono::seconds(2);

}  // namespace

EtcdAuthority::BootTime EtcdAuthority::boot_time() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

EtcdAuthority::EtcdAuthority(const EtcdSettings& settings, const GroupSettings& group)
    : settings_(settings),
      group_(group),
      prefix_(job_prefix(settings.prefix, group.rules.run_id)),
      client_(settings),
      last_turn_(boot_time()) {}

EtcdAuthority::~EtcdAuthority() {
  serve_until(*this, Clock::now() + kFarewell,
              [this] { return role_ != Role::kLeaving || client_.down_since(); });
}

// ---- a node without a host -------------------------------------------------------------------

void EtcdAuthority::seek(std::optional<Loss> loss, const Status& status) {
  status_ = status;
  expected_ = loss ? loss->last.round.info.group_world_size - (loss->host ? 1 : 0) : 0;
  text_ = loss ? loss->text : "";
  gone_id_ = loss && loss->gone ? loss->host_id : "";
  begin_seeking();
}

void EtcdAuthority::begin_seeking() {
  role_ = Role::kSeeking;
  stale_ = true;
  since_ = Clock::now();
  wait_noted_ = false;
  deposed_.clear();
  avoided_ = {};
  inquiry_.reset();
  wanted_.reset();
  granted_.reset();
  call_next();
}

Authority::Step EtcdAuthority::next(const View& view) {
  own_ = view.own;
  if (!deposed_.empty()) begin_seeking();  // before it began to host
  if (!contacted_) fail_first_contact();
  if (role_ == Role::kHosting) return {Step::Kind::kHost, own_};
  if (role_ != Role::kSeeking) return {};
  if (!stale_ && !place_is_free()) {
    const Step step = avoided_.connect_to(keys_.host->place, view.now);
    if (step.kind == Step::Kind::kConnect) return step;
  }
  call_next();
  note_silence();
  return {};
}

void EtcdAuthority::avoid(const Place& place) { avoided_.avoid(place, Clock::now() + kAvoided); }

void EtcdAuthority::settle(bool hosts) {
  if (!hosts) resign();  // the host that was thought lost has answered
  if (role_ != Role::kSeeking) return;
  role_ = Role::kIdle;
  client_.end_watch();
}

std::string EtcdAuthority::despair() const {
  // A job of a fixed number of nodes without restarts ends with its host.
  const bool fixed = !text_.empty() && needs_all_nodes(group_.rules);
  const auto timeout = fixed ? kSilentWait : group_.rules.join_timeout;
  if (role_ != Role::kSeeking || turn_ < since_ + timeout) return "";
  const std::string why =
      client_.down_since() ? client_.problem() : "the host that it names could not be reached";
  return fmt::format("{}{}no host of the job was found with etcd within {} ({})", text_,
                     text_.empty() ? "" : "; ", seconds_text(timeout), why);
}

// A user's mistake ends the job at once, a server that is not there yet after a while.
void EtcdAuthority::fail_first_contact() const {
  if (!client_.down_since() && !client_.problem_is_final()) return;
  if (client_.problem_is_final() && (client_.down_since() || !client_.busy()))
    throw LaunchError(kExitFailed, "etcd at " + client_.problem());
  if (turn_ < since_ + settings_.first_contact) return;
  throw LaunchError(
      kExitFailed,
      fmt::format("cannot reach etcd at {} within {}: {}; check --rdzv-endpoint, that etcd is "
                  "running there, and that the port is not blocked",
                  client_.endpoints(), seconds_text(settings_.first_contact), client_.problem()));
}

// What a user would wonder about.
void EtcdAuthority::note_silence() {
  if (wait_noted_ || Clock::now() < since_ + kSilentWait || client_.down_since()) return;
  if (stale_ || place_is_free()) return;
  wait_noted_ = true;
  note_ = fmt::format(
      "waiting for {} at most: the host of the job, {}, cannot be reached; it is replaced once its "
      "lease in etcd has run out ({} after its last sign of life)",
      seconds_text(group_.rules.join_timeout), place_text(keys_.host->place),
      seconds_text(settings_.lease));
}

// Whether this agent may try to become the host.
bool EtcdAuthority::place_is_free() const {
  return !keys_.host || keys_.host->id == status_.id ||
         (!gone_id_.empty() && keys_.host->id == gone_id_);
}

// ---- calls -------------------------------------------------------------------------------------

void EtcdAuthority::call(Call kind, const std::string& path, const std::string& body) {
  call_ = kind;
  called_ = boot_time();
  client_.call(path, body);
}

void EtcdAuthority::call_next() {
  if (call_ != Call::kNone || client_.busy()) return;
  switch (role_) {
    case Role::kIdle:
      return;
    case Role::kSeeking:
      return call_as_candidate();
    case Role::kHosting:
      return call_as_host();
    case Role::kLeaving:
      if (over_) {
        return call(Call::kLeave, "/v3/kv/txn",
                    transaction_request({{prefix_ + "host", keys_.host->modified}}, {}, prefix_));
      }
      return call(Call::kLeave, "/v3/lease/revoke", lease_request(lease_));
  }
}

void EtcdAuthority::read() { call(Call::kRead, "/v3/kv/range", range_request(prefix_)); }

void EtcdAuthority::call_as_candidate() {
  if (stale_) return read();
  if (!place_is_free() || own_.port == 0) {
    if (!client_.watches()) client_.watch(prefix_, keys_.revision);
    return;
  }
  claim();
}

void EtcdAuthority::call_as_host() {
  if (stale_) return read();
  if (!keys_.host || lease_ == 0) return claim();
  if (!client_.watches()) client_.watch(prefix_, keys_.revision);
  if (Clock::now() >= next_renewal_) {
    next_renewal_ = Clock::now() + settings_.lease / 4;
    return call(Call::kRenew, "/v3/lease/keepalive", lease_request(lease_));
  }
  if (wanted_ && last_round_is_over()) ask_for_epoch();
}

void EtcdAuthority::claim() {
  if (lease_ == 0 || boot_time() + settings_.lease / 2 > lease_until_) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(settings_.lease);
    return call(Call::kGrant, "/v3/lease/grant", grant_request(seconds.count()));
  }
  const HostKey host{.id = status_.id, .place = own_};
  const std::int64_t before = keys_.host ? keys_.host->modified : 0;
  call(Call::kClaim, "/v3/kv/txn",
       transaction_request({{prefix_ + "host", before}, {prefix_ + "epoch", keys_.epoch.modified}},
                           {{prefix_ + "host", host_text(host), lease_}}, ""));
}

void EtcdAuthority::ask_for_epoch() {
  asked_ = next_epoch();
  call(Call::kEpoch, "/v3/kv/txn",
       transaction_request(
           {{prefix_ + "host", keys_.host->modified}, {prefix_ + "epoch", keys_.epoch.modified}},
           {{prefix_ + "epoch", epoch_text(asked_), 0}}, ""));
}

EpochKey EtcdAuthority::next_epoch() const {
  EpochKey next{.host_id = status_.id};
  std::vector<long long> accepted;
  for (const Hello& node : *wanted_) {
    accepted.push_back(node.epoch);
    if (parse_address(node.address, 0) && node.port > 0)
      next.nodes.push_back({node.id, {node.address, node.port}});
  }
  next.epoch = granted_after(keys_.epoch.epoch, accepted);
  return next;
}

// ---- answers -----------------------------------------------------------------------------------

void EtcdAuthority::absorb(const EtcdClient::Reply& reply) {
  const Call kind = std::exchange(call_, Call::kNone);
  if (kind == Call::kLeave) {
    role_ = Role::kIdle;
    lease_ = 0;
    return;
  }
  if (!reply.ok) {
    // What was asked may have been done. A lease that etcd does not know has run out.
    stale_ = true;
    if (reply.problem.find("lease not found") != std::string::npos) lease_ = 0;
    return;
  }
  contacted_ = true;
  if (kind == Call::kRead) return absorb_read(reply.body);
  if (kind == Call::kGrant || kind == Call::kRenew) return absorb_lease(reply.body);
  absorb_transaction(kind, reply.body);
}

void EtcdAuthority::absorb_read(const std::string& body) {
  const auto range = parse_range(body);
  auto keys = range ? job_keys(*range, prefix_) : std::nullopt;
  if (!keys) {
    const std::string why = fmt::format(
        "etcd at {}: the keys below {} are not a ddp-run job's; remove them, or choose "
        "another --rdzv-id or etcd_prefix",
        client_.endpoints(), prefix_);
    if (role_ == Role::kHosting) return depose(why);
    throw LaunchError(kExitFailed, why);
  }
  client_.end_watch();
  client_.take_change();
  const std::int64_t epoch_before = std::exchange(keys_, std::move(*keys)).epoch.modified;
  stale_ = false;
  judge_place(epoch_before);
}

// This also settles a transaction whose reply was lost.
void EtcdAuthority::judge_place(std::int64_t epoch_before) {
  const bool own = keys_.host && keys_.host->id == status_.id;
  if (role_ == Role::kHosting && keys_.host && !own) {
    return depose(fmt::format("the job's host in etcd is {} now", place_text(keys_.host->place)));
  }
  if (role_ == Role::kHosting && keys_.epoch.modified != epoch_before &&
      keys_.epoch.host_id != status_.id)
    return depose("another agent has begun a later round");
  if (wanted_ && own && keys_.epoch.host_id == status_.id && asked_.epoch >= 0 &&
      keys_.epoch.epoch == asked_.epoch)
    grant_epoch();
}

void EtcdAuthority::absorb_lease(const std::string& body) {
  const auto lease = parse_lease(body);
  if (!lease || lease->id == 0 || lease->seconds <= 0) {
    lease_ = 0;
    stale_ = true;
    return;
  }
  lease_ = lease->id;
  lease_until_ = called_ + std::chrono::seconds(lease->seconds);
  contact_ = called_;
}

void EtcdAuthority::absorb_transaction(Call kind, const std::string& body) {
  const auto answer = parse_transaction(body);
  stale_ = !answer || !answer->done;
  if (stale_) return;
  if (kind == Call::kEpoch) {
    keys_.epoch = asked_;
    keys_.epoch.modified = answer->revision;
    keys_.revision = answer->revision;
    return grant_epoch();
  }
  keys_.host = HostKey{status_.id, own_, answer->revision};
  keys_.revision = answer->revision;
  client_.end_watch();
  if (role_ != Role::kSeeking) return;
  role_ = Role::kHosting;
  asked_ = {};
  began_ = Clock::now();
  next_renewal_ = began_ + settings_.lease / 4;
}

// The nodes whose round may begin now may differ from those reported to etcd.
bool EtcdAuthority::asked_for_these() const {
  if (!wanted_) return false;
  const auto now = next_epoch().nodes;
  return std::equal(now.begin(), now.end(), asked_.nodes.begin(), asked_.nodes.end(),
                    [](const auto& a, const auto& b) { return a.id == b.id; });
}

// An epoch is granted once.
void EtcdAuthority::grant_epoch() {
  const bool granted = asked_for_these();
  asked_ = {};
  if (!granted) return;
  granted_ = keys_.epoch.epoch;
  wanted_.reset();
  inquiry_.reset();
}

// ---- the loop ----------------------------------------------------------------------------------

void EtcdAuthority::note_outage(Clock::time_point now) {
  const auto since = client_.down_since();
  if (!since && std::exchange(outage_noted_, false)) note_ = "etcd answers again";
  if (!since || outage_noted_ || now < *since + kSilentWait) return;
  if (role_ != Role::kSeeking && role_ != Role::kHosting) return;
  outage_noted_ = true;
  note_ = role_ == Role::kHosting
              ? fmt::format(
                    "etcd does not answer ({}): a running round continues for {} at most, "
                    "a new one waits for etcd",
                    client_.problem(), seconds_text(settings_.outage))
              : fmt::format("waiting for etcd at {} ({})", client_.endpoints(), client_.problem());
}

void EtcdAuthority::add_poll_fds(std::vector<pollfd>& fds) const {
  client_.add_poll_fds(fds);
  if (inquiry_) inquiry_->add_poll_fds(fds);
}

void EtcdAuthority::handle(const std::vector<pollfd>& fds) {
  turn_ = Clock::now();
  judge_time();
  client_.handle(fds);
  if (inquiry_) inquiry_->handle(fds);
  if (const auto reply = client_.take_reply()) absorb(*reply);
  if (client_.take_change()) stale_ = true;
  note_outage(Clock::now());
  call_next();
}

std::optional<Clock::time_point> EtcdAuthority::deadline() const {
  NextTime next(turn_);
  next.consider(client_.deadline());
  if (inquiry_) next.consider(inquiry_->deadline());
  if (const auto down = client_.down_since()) next.consider(*down + kSilentWait);
  if (role_ == Role::kSeeking) {
    for (const auto& [place, until] : avoided_.until()) next.consider(until);
    next.consider(since_ + kSilentWait);
    next.consider(since_ + group_.rules.join_timeout);
    if (!contacted_) next.consider(since_ + settings_.first_contact);
  }
  if (role_ == Role::kHosting) {
    next.consider(next_renewal_);
    next.consider(turn_ + settings_.lease / 4);  // the clock of the lease is another one
    next.consider(began_ + kSilentWait);
    next.consider(began_ + settings_.outage);
  }
  return next.time();
}

}  // namespace ddp::launch
