// What a node does at the endpoints: as a newcomer it asks who is there before it hosts, and as the
// host it visits those that it does not listen at.
#include <fmt/format.h>

#include <algorithm>

#include "launcher/base/text.h"
#include "launcher/rendezvous/group_node.h"

namespace ddp::launch {
namespace {

bool is_ipv6(const std::string& address) { return address.find(':') != std::string::npos; }

}  // namespace

// ---- before it hosts ---------------------------------------------------------------------------

void GroupNode::on(const events::MembersRead& event) {
  Quest& quest = state_.quest;
  quest.last_members = event.members;
  quest.last_others = event.members.places;
  quest.returned = event.members.epoch >= 0;
  state_.round.epoch = event.members.epoch;
  if (!event.members.member.empty()) state_.member = event.members.member;
}

void GroupNode::ask_around() {
  Quest& quest = state_.quest;
  if (quest.last_members.places.empty() && !has_more_endpoints(sight_)) return;
  Newcomer newcomer(leads(), state_.id, state_.round.epoch);
  sight_.found.clear();
  for (const Place& place : newcomer.places()) sight_.found.push_back({.place = place});
  act(actions::Ask{newcomer.places(), status(sight_)});
  const auto since = quest.candidacy ? quest.candidacy->since : now();
  const bool noted = quest.candidacy && quest.candidacy->noted;
  quest.candidacy = Candidacy{std::move(newcomer), since, noted};
}

void GroupNode::end_candidacy() {
  if (!state_.quest.candidacy) return;
  state_.quest.candidacy.reset();
  act(actions::StopAsking{});
}

// A name with the addresses of several machines, such as a headless service's, stands for as many.
bool GroupNode::has_more_endpoints(const Sight& sight) const {
  if (!settings_.more_endpoints.empty()) return true;
  const auto& own = sight.own_places;
  if (settings_.rules.fixed_ranks || !state_.quest.at_endpoint || own.empty() ||
      !sight.elsewhere.empty())
    return false;
  for (const auto& one : sight.endpoints) {
    for (const std::string& address : one.addresses) {
      const Place place{address, one.endpoint.port};
      if (is_ipv6(address) == is_ipv6(own.front().address) &&
          std::find(own.begin(), own.end(), place) == own.end())
        return true;
    }
  }
  return false;
}

std::vector<Lead> GroupNode::leads() const {
  std::vector<Lead> leads;
  const auto& own = sight_.own_places;
  const auto add = [&](const Place& place, bool precedes) {
    const bool known = std::any_of(leads.begin(), leads.end(),
                                   [&](const Lead& lead) { return lead.place == place; });
    if (!known && std::find(own.begin(), own.end(), place) == own.end())
      leads.push_back({place, precedes});
  };
  const auto& endpoints = sight_.endpoints;
  for (std::size_t i = 0; state_.quest.at_endpoint && i < endpoints.size(); ++i) {
    for (const std::string& address : endpoints[i].addresses) {
      const bool here = i == sight_.own_rank && !own.empty();
      // Its other family may lead to this machine, too, if it leads anywhere.
      if (here && is_ipv6(address) != is_ipv6(own.front().address)) continue;
      const bool before = here && std::all_of(own.begin(), own.end(), [&](const Place& mine) {
                            return address < mine.address;
                          });
      add({address, endpoints[i].endpoint.port}, i < sight_.own_rank || before);
    }
  }
  for (const Place& place : state_.quest.last_members.places) add(place, /*precedes=*/false);
  return leads;
}

// Nodes that come meanwhile are held.
void GroupNode::stand() {
  state_.quest.holds_endpoint = true;
  ask_around();
  decide();
}

void GroupNode::on(const events::EndpointsChanged&) {
  if (state_.stage == GroupStage::kStanding) ask_around();
  // A name may lead to this machine by now.
  if (state_.hosting.active && !state_.quest.at_endpoint) act(actions::Claim{});
}

void GroupNode::decide() {
  auto& candidacy = state_.quest.candidacy;
  if (!candidacy) return move(GroupEvent::kMayHost);
  const bool alone =
      settings_.rules.allow_minority && now() >= candidacy->since + 2 * state_.host.patience;
  const auto step = candidacy->newcomer.next(sight_.found, alone, now());
  const std::string unknown = alone ? "" : sight_.unknown;
  if (step.kind == Newcomer::Step::Kind::kHost && unknown.empty())
    return move(GroupEvent::kMayHost);
  if (step.kind != Newcomer::Step::Kind::kConnect) return note_standing(unknown);
  move(GroupEvent::kNamed, "", step.place);
}

// A node that returns and is at no endpoint asks known members first: at the endpoint there may be
// a newcomer without any.
void GroupNode::ask_last_members() {
  const Quest& quest = state_.quest;
  if (!quest.candidacy || state_.stage != GroupStage::kSearching || resumes() ||
      quest.holds_endpoint)
    return;
  Candidacy& candidacy = *state_.quest.candidacy;
  const auto step = candidacy.newcomer.next(sight_.found, false, now());
  candidacy.all_heard = step.kind == Newcomer::Step::Kind::kHost;
  if (sight_.follows || candidacy.all_heard) return;
  if (step.kind == Newcomer::Step::Kind::kConnect) return connect_to(step.place);
  act(actions::ProlongSearch{});
  note_standing("");
}

bool GroupNode::may_greet(const Sight& sight) const {
  const auto& candidacy = state_.quest.candidacy;
  return !candidacy || resumes() || sight.follows || candidacy->all_heard;
}

// When a newcomer that waits has to be looked at again, whatever the others say.
std::optional<Clock::time_point> GroupNode::next_judgement(const Sight& sight) const {
  const Quest& quest = state_.quest;
  // As in ask_last_members(): nothing else sets `noted`.
  const bool asks = state_.stage == GroupStage::kSearching && !resumes() && !quest.holds_endpoint &&
                    !quest.candidacy->all_heard && !sight.follows;
  if (state_.stage != GroupStage::kStanding && !asks) return std::nullopt;
  const auto& since = quest.candidacy->since;
  const auto alone = since + 2 * state_.host.patience;
  auto next = since + settings_.rules.join_timeout;
  if (!quest.candidacy->noted) next = std::min<Clock::time_point>(next, since + kSilentWait);
  if (settings_.rules.allow_minority && state_.awake < alone) next = std::min(next, alone);
  return next;
}

// Waiting is right, two jobs are not.
void GroupNode::note_standing(const std::string& unknown) {
  Candidacy& candidacy = *state_.quest.candidacy;
  const auto& timeout = settings_.rules.join_timeout;
  const std::string silent = candidacy.newcomer.missing();
  std::string why = silent.empty() ? "" : silent + ": no answer; the job may be running there";
  if (!unknown.empty())
    why += fmt::format("{}the name {} is not known yet", why.empty() ? "" : ", and ", unknown);
  if (why.empty()) why = "the nodes of the last round are looking for their next host";
  if (!candidacy.noted && now() >= candidacy.since + kSilentWait) {
    candidacy.noted = true;
    tell_note(
        fmt::format("waiting for {} at most: {} (--rdzv-conf=allow_minority=1 begins without "
                    "them)",
                    seconds_text(timeout), why));
  }
  if (now() < candidacy.since + timeout) return;
  end_candidacy();
  act(actions::RemoveMembers{});
  tell_end(fmt::format("no job was found or begun within {}: {}; if it is over, start again",
                       seconds_text(timeout), why));
}

void GroupNode::host_at_endpoint() {
  end_candidacy();
  note_missing_token();
  const Place& place = sight_.own_places.front();
  host({.epoch = state_.round.epoch}, is_loopback(place.address) ? Place{} : place, place);
}

void GroupNode::note_missing_token() {
  const auto& own = sight_.own_places;
  const bool in_reach = std::any_of(own.begin(), own.end(),
                                    [](const auto& one) { return !is_loopback(one.address); });
  if (!settings_.token.empty() || !in_reach || settings_.rules.max_nodes < 2) return;
  tell_note(
      fmt::format("without a token, anyone who can connect to {} can join this job or end it; {}",
                  place_text(own.front()), settings_.token_remedy));
}

// A newcomer that would have hosted a job of its own: the nodes of the other one ask here. So does
// the present host of a node that has lost an earlier one.
void GroupNode::on(const events::Called& event) {
  Quest& quest = state_.quest;
  const Place place{event.status.address, event.status.port};
  if (event.status.run_id != settings_.rules.run_id || place.address.empty()) return;
  quest.callers.push_back({place, Inquiry::Found::kAnswer, event.status});
  const bool waits = quest.waits_since && state_.stage == GroupStage::kSearching && sight_.idle;
  if (state_.stage == GroupStage::kStanding || waits) move(GroupEvent::kNamed, "", place);
}

void GroupNode::judge_wait() {
  auto& since = state_.quest.waits_since;
  const auto timeout = settings_.rules.join_timeout;
  if (!since || now() < *since + timeout) return;
  since.reset();
  tell_end(fmt::format("the job {} runs already, and its host could not be reached within {}",
                       settings_.rules.run_id, seconds_text(timeout)));
}

// ---- as the host -------------------------------------------------------------------------------

bool GroupNode::watches_endpoints(const Sight& sight) const {
  if (settings_.rules.fixed_ranks || authority_leads_) return false;
  // Until the first round a name server may learn of further machines.
  const bool may_gain = !state_.round.last && !parse_address(settings_.host, settings_.port);
  const bool elsewhere = !state_.quest.at_endpoint || may_gain || has_more_endpoints(sight);
  return state_.stage == GroupStage::kStanding ||
         (elsewhere && (state_.hosting.active || state_.quest.sought == Sought::kNextHost));
}

// A node that was started anew knows the endpoints only, and may have begun a job of its own there.
std::optional<std::vector<Place>> GroupNode::places_to_visit(const Sight& sight) const {
  const bool hosts = state_.hosting.active && state_.stage == GroupStage::kMember;
  if (!watches_endpoints(sight) || (!hosts && state_.quest.sought != Sought::kNextHost))
    return std::nullopt;
  std::vector<Place> places;
  for (const auto& one : sight.endpoints) {
    for (const std::string& address : one.addresses) places.push_back({address, one.endpoint.port});
  }
  for (std::size_t i = 0; state_.quest.at_endpoint && i < sight.own_places.size(); ++i)
    std::erase(places, sight.own_places[i]);
  return places;
}

}  // namespace ddp::launch
