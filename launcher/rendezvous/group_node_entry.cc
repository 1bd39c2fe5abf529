// How a node becomes a member of the group: it finds the host of the rendezvous or is the host; and
// what it does when it has lost its host.
#include <fmt/format.h>

#include "launcher/rendezvous/group_node.h"
#include "launcher/rendezvous/round/epochs.h"
#include "launcher/rendezvous/round/succession.h"

namespace ddp::launch {
namespace {

constexpr int kClaims = 50;
constexpr std::chrono::milliseconds kClaimPause{20};

}  // namespace

// ---- the search --------------------------------------------------------------------------------

void GroupNode::search() {
  if (!state_.quest.candidacy) ask_around();
  sight_.follows = sight_.exhausted = false;
  act(actions::Search{state_.quest.may_host});
}

// At an endpoint, where the host of the job that runs looks for nodes.
void GroupNode::wait_for_host() {
  if (!state_.quest.candidacy) ask_around();
  act(actions::RestSearch{});
  state_.quest.waits_since = now();
}

void GroupNode::connect_to(const Place& place) {
  sight_.follows = true;
  sight_.exhausted = false;
  act(actions::Connect{place, state_.host.patience});
}

void GroupNode::disconnect() {
  state_.host.open = false;
  act(actions::Disconnect{});
}

void GroupNode::follow(const Place& place) {
  disconnect();
  connect_to(place);
}

void GroupNode::on(const events::Listening&) {
  if (state_.local_address.empty()) state_.local_address = sight_.elsewhere;
  state_.quest.at_endpoint = true;
  move(GroupEvent::kListening);
}

void GroupNode::on(const events::Unreachable&) {
  const HostLink& host = state_.host;
  if (state_.quest.retry_at) return;
  if (resumes() && sight_.refused) return lose_host("its ddp-run is gone", /*gone=*/true);
  if (resumes() && now() >= host.heard + host.patience) return lose_host(host.closed_because);
  move(GroupEvent::kUnreachable);
}

// The agent at the present place did not become this node's host.
void GroupNode::try_another(const std::string& why) {
  constexpr std::chrono::milliseconds kAvoided{500};
  disconnect();
  if (state_.stage == GroupStage::kSeeking) return act(actions::Avoid{sight_.present});
  if (auto& candidacy = state_.quest.candidacy)
    candidacy->newcomer.avoid(sight_.present, now() + kAvoided);
  if (state_.stage != GroupStage::kStanding) act(actions::TryAnother{why});
}

// ---- the connection ----------------------------------------------------------------------------

void GroupNode::on(const events::Opened& event) {
  state_.host.open = true;
  move(GroupEvent::kConnected);
  if (!resumes()) state_.host.heard = state_.quest.held_since = now();
  state_.host.next_beat = now() + settings_.rules.heartbeat;
  state_.numeric_address = event.local_address;
  if (!state_.hosting.active) open_port();
  act(actions::SayHello{});
}

void GroupNode::on(const events::Received& event) {
  state_.host.heard = now();
  if (state_.stage == GroupStage::kMember) {
    state_.host.session.receive(event.message);
    return std::visit([this](const auto& message) { receive(message); }, event.message);
  }
  if (const auto* m = std::get_if<Refused>(&event.message)) return refused(m->why);
  if (const auto* m = std::get_if<Welcome>(&event.message)) return enter(*m);
  if (const auto* m = std::get_if<Status>(&event.message)) redirect(*m);
}

// What this node has sent would be misunderstood again, unless the peer or the network closed it.
void GroupNode::on(const events::Closed& event) {
  const bool member = state_.stage == GroupStage::kMember;
  if (member && !event.peer_is_gone) return lose_host(event.why);
  move(GroupEvent::kClosed, event.why);
}

void GroupNode::enter(const Welcome& welcome) {
  HostLink& host = state_.host;
  host.node = welcome.node;
  host.heartbeat = welcome.heartbeat;
  host.patience = welcome.patience;
  host.next_beat = now();
  move(GroupEvent::kWelcome);
  act(actions::Settle{.hosts = state_.hosting.active});
  end_candidacy();
  state_.quest.waits_since.reset();
  state_.quest.hold_noted = false;
  const bool resumed = std::exchange(state_.quest.sought, Sought::kAnyHost) == Sought::kSameHost;
  if (welcome.resumed) {
    host.session.confirm(welcome.received);
    return act(actions::Resend{});
  }
  host.session = {};
  host.id = welcome.session;
  if (resumed) {
    host.lost_because = "the other nodes gave up on this one";
    abandon_round();
    if (state_.round.work == Work::kNone) end_lost_round();
  }
  if (state_.round.withdrawn)
    return on(events::Withdraw{std::exchange(state_.round.withdrawn, std::nullopt)->why});
  if (state_.round.work == Work::kAwaited) send_join();
}

void GroupNode::refused(const std::string& why) {
  const std::string text =
      fmt::format("the rendezvous at {} refused this node: {}", place_text(sight_.present), why);
  if (!state_.round.last) return act(actions::Fail{text});
  tell_end(text);
}

// The agent that was connected to hosts nothing.
void GroupNode::redirect(const Status& status) {
  if (resumes()) state_.host.heard = {};  // the others may have gone on already
  const bool elsewhere = status.has_host() && !status.hosts;
  move(elsewhere ? GroupEvent::kSentOn : GroupEvent::kNoHost,
       resumes() ? "it has left the job to another host" : "it does not host the rendezvous",
       {status.address, status.port});
}

// Messages on their way are sent again: to the job it is as if nothing had happened.
void GroupNode::resume(const std::string& why) {
  state_.quest.sought = Sought::kSameHost;
  state_.host.closed_because = why;
  follow(Place(sight_.present));
}

// ---- a host that is lost -----------------------------------------------------------------------

void GroupNode::lose_host(const std::string& why, bool gone) {
  state_.host.gone = gone;
  lose_job(
      fmt::format("the host of the rendezvous, {}, was lost: {}", place_text(sight_.present), why));
}

void GroupNode::lose_job(const std::string& text, GroupEvent event, const Place& place) {
  disconnect();
  state_.quest.sought = Sought::kAnyHost;
  state_.quest.retry_at.reset();
  state_.host.lost_because = text;
  move(event, "", place);
}

void GroupNode::orphan() {
  abandon_round();
  if (state_.round.work == Work::kLost) {
    state_.round.work = Work::kRunning;
  } else {
    tell_end(state_.host.lost_because);
  }
}

// This node has no host.
void GroupNode::seek() {
  state_.quest.sought = Sought::kNextHost;
  std::optional<Authority::Loss> loss;
  if (state_.round.last) {
    abandon_round();
    // At once, though workers may take their time to stop: the other nodes look for their host.
    if (state_.round.work == Work::kNone) end_lost_round();
    HostLink& host = state_.host;
    // What was read just after this process had been suspended may be old.
    const bool fresh =
        host.heard > state_.stalled + kOldWords || state_.stalled == Clock::time_point{};
    loss = {.last = *state_.round.last,
            .host_id = host.id,
            .gone = std::exchange(host.gone, false),
            .patience = host.patience,
            .fresh_until = fresh ? host.heard + host.patience * 3 / 4 : Clock::time_point{},
            .text = host.lost_because};
    if (host.id != state_.id) loss->host = sight_.present;
  }
  act(actions::Seek{std::move(loss), status(sight_)});
}

// Also while another node without a host holds this one: the two may hold each other.
bool GroupNode::seeks() const {
  return state_.stage == GroupStage::kSeeking ||
         (state_.stage == GroupStage::kGreeting && state_.quest.sought == Sought::kNextHost);
}

Authority::View GroupNode::view(Clock::time_point now, const std::vector<Hello>& held,
                                const std::vector<Inquiry::Finding>& visited) const {
  Authority::View view{.now = now, .own = own_place()};
  if (!state_.round.last) return view;
  const Round& last = state_.round.last->round;
  const long long epoch = std::max(state_.round.epoch, last.info.epoch);
  for (const Hello& hello : held) {
    if (hello.epoch > epoch) {
      if (can_follow(hello.epoch, epoch)) view.later.push_back(hello);
    } else if (took_part(last, hello)) {
      view.followers.push_back(hello);
    }
  }
  for (const auto* findings : {&state_.quest.callers, &visited}) {
    for (const auto& one : *findings) {
      if (can_follow(one.status.epoch, epoch)) view.endpoints.push_back(one);
    }
  }
  return view;
}

void GroupNode::on(const events::Advised& event) {
  using Kind = Authority::Step::Kind;
  const auto& [kind, place] = event.step;
  if (kind == Kind::kHost && now() >= state_.hosting.rests_until) return move(GroupEvent::kMayHost);
  if (!event.despair.empty()) return tell_end(event.despair);
  const bool held_there = state_.stage == GroupStage::kGreeting && place == sight_.present;
  if (kind == Kind::kConnect && !held_there) move(GroupEvent::kNamed, "", place);
}

// ---- as the host -------------------------------------------------------------------------------

// Where this node would host, if it has had no connection yet that gave it a place.
void GroupNode::open_port() {
  if (state_.numeric_address.empty()) state_.numeric_address = sight_.own_address;
  if (state_.hosting.port == 0 && !own_address().empty()) act(actions::OpenPort{own_address()});
}

void GroupNode::host(JobHistory history, const Place& status_place, const Place& socket) {
  state_.hosting.active = true;
  state_.quest.holds_endpoint = false;
  act(actions::Host{std::move(history), status_place});
  act(actions::Settle{.hosts = true});
  state_.quest.sought = Sought::kAnyHost;
  sight_.follows = true;
  act(actions::Connect{socket, std::chrono::milliseconds::max()});
}

void GroupNode::take_over() {
  disconnect();
  const RoundPart& part = state_.round;
  JobHistory history{.epoch = part.epoch, .unused = part.unused_epoch};
  if (part.last) {
    const Round& last = part.last->round;
    history.epoch = last.info.epoch;  // this node may have been a spare
    history.rounds = last.info.restart_count + 1;
    history.tally = last.tally;
    history.changes = last.changes;
    history.job = last.info.job;
    for (const Successor& one : last.successors)
      history.order.emplace(one.member, static_cast<int>(history.order.size()));
    tell_note("this node hosts the rendezvous from now on");
  }
  state_.hosting.claims_left = authority_leads_ ? 0 : kClaims;
  state_.hosting.claim_at = now();
  host(std::move(history), own_place(), own_place());
}

// Newcomers know the endpoints only, which may be on this machine. The kernel may have closed the
// old host's connections before its listening socket, so one attempt would not do.
void GroupNode::on(const events::Claimed& event) {
  Hosting& own = state_.hosting;
  state_.quest.at_endpoint = state_.quest.at_endpoint || event.listens;
  own.claims_left = event.taken ? own.claims_left - 1 : 0;
  own.claim_at = now() + kClaimPause;
}

// Its sockets stay open to redirect nodes to the host.
void GroupNode::on(const events::Deposed& event) {
  Hosting& own = state_.hosting;
  own.active = false;
  if (event.port > 0) own.port = event.port;
  own.rests_until = now() + state_.host.heartbeat;  // two hosts would depose each other in turn
  // Unless a node of the last round knows better.
  state_.round.unused_epoch = std::max(state_.round.unused_epoch, event.later_epoch);
  state_.quest.holds_endpoint = state_.quest.at_endpoint;
  lose_job(event.why, GroupEvent::kDeposed, event.successor);
}

// A node that has lost its host knows no address: the next host tells this one (events::Called).
void GroupNode::make_way(const Place& place) {
  state_.quest.may_host = false;
  tell_note(
      fmt::format("the job {} runs already: this node waits to join it", settings_.rules.run_id));
  act(actions::RestSearch{});
  state_.quest.waits_since = now();
  if (!place.address.empty()) follow(place);
}

}  // namespace ddp::launch
