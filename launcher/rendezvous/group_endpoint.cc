// What an agent does at the endpoints: as a newcomer it asks who is there before it hosts, and as
// the host it visits those that it does not listen at.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/base/system/sockets.h"
#include "launcher/base/text.h"
#include "launcher/rendezvous/group_rendezvous.h"

namespace ddp::launch {
namespace {

constexpr std::chrono::milliseconds kClaimPause{20};
constexpr std::chrono::milliseconds kVisit{500};

bool is_ipv6(const std::string& address) { return address.find(':') != std::string::npos; }

}  // namespace

// ---- before it hosts ---------------------------------------------------------------------------

// What an earlier agent of this node has left.
void GroupRendezvous::ask_around() {
  if (!std::exchange(members_read_, true)) {
    last_members_ = members_file_.read();
    last_others_ = last_members_.places;
    epoch_ = last_members_.epoch;
    returned_ = epoch_ >= 0;
    if (!last_members_.member.empty()) member_ = last_members_.member;
  }
  if (const std::string note = members_file_.take_note(); !note.empty()) tell_note(note);
  if (last_members_.places.empty() && !has_more_endpoints()) return;
  Newcomer newcomer(leads(), id_, epoch_);
  Inquiry inquiry(newcomer.places(), status(), settings_.token, settings_.rules.patience());
  const auto since = candidacy_ ? candidacy_->since : Clock::now();
  const bool noted = candidacy_ && candidacy_->noted;
  candidacy_.emplace(std::move(newcomer), std::move(inquiry), since, noted);
}

// A name with the addresses of several machines, such as a headless service's, stands for as many.
bool GroupRendezvous::has_more_endpoints() const {
  if (!settings_.more_endpoints.empty()) return true;
  const auto& own = search_.own().places();
  if (settings_.rules.fixed_ranks || !at_endpoint_ || own.empty() ||
      !search_.own().elsewhere().empty())
    return false;
  for (const auto& one : watch_.endpoints()) {
    for (const std::string& address : one.addresses) {
      const Place place{address, one.endpoint.port};
      if (is_ipv6(address) == is_ipv6(own.front().address) &&
          std::find(own.begin(), own.end(), place) == own.end())
        return true;
    }
  }
  return false;
}

std::vector<Lead> GroupRendezvous::leads() const {
  std::vector<Lead> leads;
  const auto& own = search_.own().places();
  const auto add = [&](const Place& place, bool precedes) {
    const bool known = std::any_of(leads.begin(), leads.end(),
                                   [&](const Lead& lead) { return lead.place == place; });
    if (!known && std::find(own.begin(), own.end(), place) == own.end())
      leads.push_back({place, precedes});
  };
  const auto& endpoints = watch_.endpoints();
  for (std::size_t i = 0; at_endpoint_ && i < endpoints.size(); ++i) {
    for (const std::string& address : endpoints[i].addresses) {
      const bool here = i == search_.own().rank() && !own.empty();
      // Its other family may lead to this machine, too, if it leads anywhere.
      if (here && is_ipv6(address) != is_ipv6(own.front().address)) continue;
      const bool before = here && std::all_of(own.begin(), own.end(), [&](const Place& mine) {
                            return address < mine.address;
                          });
      add({address, endpoints[i].endpoint.port}, i < search_.own().rank() || before);
    }
  }
  for (const Place& place : last_members_.places) add(place, /*precedes=*/false);
  return leads;
}

// Nodes that come meanwhile are held.
void GroupRendezvous::stand() {
  holds_endpoint_ = true;
  watch_.take_change();
  ask_around();
  decide();
}

void GroupRendezvous::decide() {
  if (watch_.take_change()) ask_around();
  if (!candidacy_) return handle_event(GroupEvent::kMayHost);
  const auto now = Clock::now();
  const bool alone = settings_.rules.allow_minority && now >= candidacy_->since + 2 * patience_;
  const auto step = candidacy_->newcomer.next(candidacy_->inquiry.findings(), alone, now);
  const std::string unknown = alone ? "" : watch_.unknown();
  if (step.kind == Newcomer::Step::Kind::kHost && unknown.empty())
    return handle_event(GroupEvent::kMayHost);
  if (step.kind != Newcomer::Step::Kind::kConnect) return note_standing(now, unknown);
  handle_event(GroupEvent::kNamed, "", step.place);
}

// A node that returns and is at no endpoint asks known members first: at the endpoint there may be
// a newcomer without any.
void GroupRendezvous::check_last_members() {
  if (!candidacy_ || stage_ != Stage::kSearching || resumes() || holds_endpoint_) return;
  const auto now = Clock::now();
  const auto step = candidacy_->newcomer.next(candidacy_->inquiry.findings(), false, now);
  candidacy_->all_heard = step.kind == Newcomer::Step::Kind::kHost;
  if (search_.follows() || candidacy_->all_heard) return;
  if (step.kind == Newcomer::Step::Kind::kConnect) {
    search_.follow({step.place}, patience_);
  } else {
    search_.postpone();
    note_standing(now, "");
  }
}

bool GroupRendezvous::may_greet() const {
  return !candidacy_ || resumes() || search_.follows() || candidacy_->all_heard;
}

// When a newcomer that waits has to be looked at again, whatever the others say.
std::optional<Clock::time_point> GroupRendezvous::next_judgement() const {
  // As in check_last_members(): nothing else sets `noted`.
  const bool asks = stage_ == Stage::kSearching && !resumes() && !holds_endpoint_ &&
                    !candidacy_->all_heard && !search_.follows();
  if (stage_ != Stage::kStanding && !asks) return std::nullopt;
  const auto& since = candidacy_->since;
  const auto alone = since + 2 * patience_;
  auto next = since + settings_.rules.join_timeout;
  if (!candidacy_->noted) next = std::min<Clock::time_point>(next, since + kSilentWait);
  if (settings_.rules.allow_minority && Clock::now() < alone) next = std::min(next, alone);
  return next;
}

// Waiting is right, two jobs are not.
void GroupRendezvous::note_standing(Clock::time_point now, const std::string& unknown) {
  const auto& timeout = settings_.rules.join_timeout;
  const std::string silent = candidacy_->newcomer.missing();
  std::string why = silent.empty() ? "" : silent + ": no answer; the job may be running there";
  if (!unknown.empty())
    why += fmt::format("{}the name {} is not known yet", why.empty() ? "" : ", and ", unknown);
  if (why.empty()) why = "the nodes of the last round are looking for their next host";
  if (!candidacy_->noted && now >= candidacy_->since + kSilentWait) {
    candidacy_->noted = true;
    tell_note(
        fmt::format("waiting for {} at most: {} (--rdzv-conf=allow_minority=1 begins without "
                    "them)",
                    seconds_text(timeout), why));
  }
  if (now < candidacy_->since + timeout) return;
  candidacy_.reset();
  members_file_.remove();
  tell_end(fmt::format("no job was found or begun within {}: {}; if it is over, start again",
                       seconds_text(timeout), why));
}

void GroupRendezvous::host_at_endpoint() {
  candidacy_.reset();
  holds_endpoint_ = false;
  note_missing_token();
  host({.epoch = epoch_}, signpost_.take_listeners());
  for (Follower& follower : signpost_.take_followers()) coordinator_->adopt(std::move(follower));
  next_visit_ = Clock::now();
  search_.connect_to_self(search_.own().places().front());
  take_search_results();
}

void GroupRendezvous::note_missing_token() {
  const auto& own = search_.own().places();
  const bool in_reach = std::any_of(own.begin(), own.end(),
                                    [](const auto& one) { return !is_loopback(one.address); });
  if (!settings_.token.empty() || !in_reach || settings_.rules.max_nodes < 2) return;
  tell_note(
      fmt::format("without a token, anyone who can connect to {} can join this job or end it; {}",
                  place_text(own.front().address, own.front().port), settings_.token_remedy));
}

void GroupRendezvous::remember(const Round& round, bool took_part) {
  last_round_ = {.round = round,
                 .node = own_node_,
                 .took_part = took_part,
                 .begun = !took_part,  // spares are notified afterwards
                 .host_id = host_id_,
                 .host = search_.present()};
  LastMembers members{.member = member_, .epoch = epoch_, .alone = was_alone()};
  if (!coordinator_) members.places.push_back(search_.present());
  for (const Successor& one : round.successors) {
    if (one.node != own_node_ && one.port > 0) members.places.push_back({one.address, one.port});
  }
  // Members of an earlier round may continue without this node once it is lost; then it asks them.
  if (members.places.empty()) members.places = last_others_;
  last_others_ = members.places;
  members_file_.write(members);
  if (const std::string note = members_file_.take_note(); !note.empty()) tell_note(note);
}

// ---- as the host -------------------------------------------------------------------------------

bool GroupRendezvous::watches_endpoints() const {
  if (settings_.rules.fixed_ranks || authority_->finds_first_host()) return false;
  const bool elsewhere = !at_endpoint_ || has_more_endpoints();
  return stage_ == Stage::kStanding || (elsewhere && (coordinator_ || seeks()));
}

// A node that was started anew knows the endpoints only, and may have begun a job of its own there.
void GroupRendezvous::visit_endpoint() {
  const bool hosts = coordinator_ && stage_ == Stage::kMember;
  if (!watches_endpoints() || (!hosts && !seeks())) return visit_.reset();
  if (visit_) {
    visit_->handle({});
    for (const auto& finding : visit_->findings()) {
      if (hosts && finding.found == Inquiry::Found::kAnswer) coordinator_->hear(finding.status);
    }
  }
  if (Clock::now() < next_visit_) return;
  next_visit_ = Clock::now() + kVisit;
  std::vector<Place> places;
  for (const auto& one : watch_.endpoints()) {
    for (const std::string& address : one.addresses) places.push_back({address, one.endpoint.port});
  }
  if (at_endpoint_) {
    for (const auto& own : search_.own().places()) std::erase(places, own);
  }
  visit_.emplace(places, hosts ? coordinator_->status() : status(), settings_.token, patience_);
}

// Newcomers know the endpoints only, which may be on this machine. The kernel may have closed the
// old host's connections before its listening socket, so one attempt would not do.
void GroupRendezvous::claim_endpoint() {
  if (claims_left_ == 0 || Clock::now() < claim_at_) return;
  bool taken = false;
  for (const Endpoint& endpoint : settings_.endpoints()) {
    const auto address = parse_address(endpoint.host, endpoint.port);
    const int fd = address ? listen_on(*address) : -1;
    if (fd >= 0) coordinator_->also_listen(fd);
    at_endpoint_ = at_endpoint_ || fd >= 0;
    taken = taken || (fd < 0 && address && errno == EADDRINUSE);
  }
  claims_left_ = taken ? claims_left_ - 1 : 0;
  claim_at_ = Clock::now() + kClaimPause;
}

}  // namespace ddp::launch
