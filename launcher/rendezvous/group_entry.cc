// How an agent becomes a member of the group: it finds the host of the rendezvous or is the host.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/system/sockets.h"
#include "launcher/base/text.h"
#include "launcher/rendezvous/group_rendezvous.h"
#include "launcher/rendezvous/round/epochs.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr int kClaims = 50;

}  // namespace

void GroupRendezvous::connect() {
  if (stage_ == Stage::kIdle) handle_event(GroupEvent::kStart);
}

void GroupRendezvous::join() {
  wants_round_ = true;
  join_is_due_ = false;
  if (has_host()) return send_join();
  connect();
}

void GroupRendezvous::search() {
  if (!candidacy_) ask_around();
  search_.begin();
  take_search_results();
}

// At an endpoint, where the host of the job that runs looks for nodes.
void GroupRendezvous::wait_for_host() {
  if (!candidacy_) ask_around();
  search_.rest();
  waits_since_ = Clock::now();
}

// ---- a connection that ends, and a host that is lost -------------------------------------------

// Messages on their way are sent again: to the job it is as if nothing had happened.
void GroupRendezvous::reconnect(const std::string& why) {
  sought_ = Sought::kSameHost;
  reconnect_why_ = why;
  follow(Place(search_.present()));
}

void GroupRendezvous::follow(const Place& place) {
  channel_.reset();
  search_.follow({place}, patience_);
  take_search_results();
}

void GroupRendezvous::retry() {
  if (!retry_at_ || Clock::now() < *retry_at_) return;
  retry_at_.reset();
  if (resumes() || (stage_ == Stage::kSearching && search_.exhausted()))
    handle_event(GroupEvent::kStart, reconnect_why_);
}

Status GroupRendezvous::status() const {
  // A node that has returned knows its last round's epoch, but has no part in that round any more.
  Status status{.id = id_, .run_id = settings_.rules.run_id, .epoch = last_round_ ? epoch_ : -1};
  if (stage_ != Stage::kMember) return status;
  status.hosts = coordinator_ != nullptr;
  status.address = search_.present().address;
  status.port = search_.present().port;
  return status;
}

// This node has no host.
void GroupRendezvous::seek() {
  sought_ = Sought::kNextHost;
  std::optional<Authority::Loss> loss;
  if (last_round_) {
    rejoin();
    // At once, though workers may take their time to stop: the other nodes look for their host.
    if (!in_round_ && !wants_round_ && !join_is_due_) lose_round();
    // What was read just after this process had been suspended may be old.
    const bool fresh = heard_ > stalled_ + kOldWords || stalled_ == Clock::time_point{};
    loss = {.last = *last_round_,
            .host_id = host_id_,
            .gone = std::exchange(host_gone_, false),
            .patience = patience_,
            .fresh_until = fresh ? heard_ + patience_ * 3 / 4 : Clock::time_point{},
            .text = lost_text_};
    if (host_id_ != id_) loss->host = search_.present();
  }
  authority_->seek(std::move(loss), status());
}

Authority::View GroupRendezvous::view() const {
  Authority::View view{.now = Clock::now(), .own = place()};
  if (!last_round_) return view;
  const long long epoch = std::max(epoch_, last_round_->round.info.epoch);
  for (const Follower& follower : signpost_.followers()) {
    const Hello& hello = follower.hello;
    if (hello.epoch > epoch) {
      if (can_follow(hello.epoch, epoch)) view.later.push_back(hello);
    } else if (took_part(last_round_->round, hello)) {
      view.followers.push_back(hello);
    }
  }
  std::vector<Inquiry::Finding> found = callers_;
  if (visit_) found.insert(found.end(), visit_->findings().begin(), visit_->findings().end());
  for (const auto& finding : found) {
    if (can_follow(finding.status.epoch, epoch)) view.endpoints.push_back(finding);
  }
  return view;
}

// Where a node without a host waits. Two nodes that have lost theirs may hold each other.
std::optional<Place> GroupRendezvous::holder() const {
  const bool waits = stage_ == Stage::kGreeting && sought_ == Sought::kAnyHost && !coordinator_;
  return waits ? std::optional(search_.present()) : std::nullopt;
}

std::optional<Clock::time_point> GroupRendezvous::hold_note_due() const {
  return holder() && !hold_noted_ ? std::optional(held_since_ + kSilentWait) : std::nullopt;
}

void GroupRendezvous::note_hold(Clock::time_point now) {
  if (const auto due = hold_note_due(); !due || now < *due) return;
  hold_noted_ = true;
  tell_note(
      fmt::format("waiting at {}: that node has lost the host of the job {} and looks for "
                  "the next one",
                  search_.present_text(), settings_.rules.run_id));
}

// Where this node would host, if it has had no connection yet that gave it a place.
void GroupRendezvous::prepare_place() {
  if (own_numeric_.empty()) own_numeric_ = authority_->own_address();
  const std::string address = settings_.local_addr.empty() ? own_numeric_ : settings_.local_addr;
  if (succession_port_ > 0 || address.empty()) return;
  const int fd = listen_for_peers(address);
  if (fd < 0) return;
  signpost_.listen({fd});
  succession_port_ = port_of(fd);
}

// Also while another node without a host holds this one: the two may hold each other.
void GroupRendezvous::find_host() {
  const bool held = stage_ == Stage::kGreeting;
  prepare_place();
  const Authority::View known = view();
  const auto now = known.now;
  const auto step = authority_->next(known);
  if (const std::string note = authority_->take_note(); !note.empty()) tell_note(note);
  if (step.kind == Authority::Step::Kind::kHost && now >= rests_until_)
    return handle_event(GroupEvent::kMayHost);
  if (const std::string why = authority_->despair(now); !why.empty()) return tell_end(why);
  if (step.kind != Authority::Step::Kind::kConnect) return;
  if (held && step.place == search_.present()) return;
  handle_event(GroupEvent::kNamed, "", step.place);
}

// The agent that was connected to hosts nothing.
void GroupRendezvous::redirect(const Status& status) {
  if (resumes()) heard_ = {};  // the others may have gone on already
  const bool elsewhere = status.has_host() && !status.hosts;
  handle_event(
      elsewhere ? GroupEvent::kSentOn : GroupEvent::kNoHost,
      resumes() ? "it has left the job to another host" : "it does not host the rendezvous",
      {status.address, status.port});
}

// It did not become this node's host.
void GroupRendezvous::leave_candidate(const std::string& why) {
  constexpr std::chrono::milliseconds kAvoided{500};
  channel_.reset();
  if (stage_ == Stage::kSeeking) return authority_->avoid(search_.present());
  if (candidacy_) candidacy_->newcomer.avoid(search_.present(), Clock::now() + kAvoided);
  if (stage_ == Stage::kStanding) return;
  search_.try_another(why);
  take_search_results();
}

void GroupRendezvous::take_search_results() {
  if (stage_ != Stage::kSearching) return;
  if (auto listeners = search_.take_listeners(); !listeners.empty()) {
    if (settings_.local_addr.empty()) settings_.local_addr = search_.own().elsewhere();
    at_endpoint_ = true;
    watch_.set(search_.endpoints());
    signpost_.listen(listeners);
    return handle_event(GroupEvent::kListening);
  }
  if (const std::string note = search_.take_note(); !note.empty()) tell_note(note);
  if (search_.exhausted() && !retry_at_) {
    if (resumes() && search_.was_refused()) return lose_host("its ddp-run is gone", /*gone=*/true);
    if (resumes() && Clock::now() >= heard_ + patience_) return lose_host(reconnect_why_);
    return handle_event(GroupEvent::kUnreachable);
  }
  if (!may_greet()) return;
  if (auto channel = search_.take_channel()) {
    channel_ = std::move(channel);
    say_hello();
  }
}

void GroupRendezvous::host(JobHistory history, std::vector<int> listeners) {
  MembershipRules rules = settings_.rules;
  rules.host_id = id_;
  rules.epochs_are_granted = authority_->grants_epochs();
  Coordinator::StoreClients store_clients;
  if (settings_.shares_port()) store_clients = [this](int fd) { store_.adopt(fd); };
  coordinator_ = std::make_unique<Coordinator>(rules, std::move(history), settings_.token,
                                               std::move(listeners), std::move(store_clients));
}

void GroupRendezvous::take_over() {
  channel_.reset();
  JobHistory history{.epoch = epoch_, .unused = unused_epoch_};
  if (last_round_) {
    const Round& last = last_round_->round;
    history.epoch = last.info.epoch;  // this node may have been a spare
    history.rounds = last.info.restart_count + 1;
    history.tally = last.tally;
    history.changes = last.changes;
    history.job = last.info.job;
    for (const Successor& one : last.successors)
      history.order.emplace(one.member, static_cast<int>(history.order.size()));
  }
  authority_->hand_down(history);
  authority_->settle(/*hosts=*/true);
  sought_ = Sought::kAnyHost;
  if (last_round_) tell_note("this node hosts the rendezvous from now on");
  claims_left_ = authority_->finds_first_host() ? 0 : kClaims;
  claim_at_ = next_visit_ = Clock::now();
  host(std::move(history), signpost_.take_listeners());
  coordinator_->set_place(place());
  holds_endpoint_ = false;
  for (Follower& follower : signpost_.take_followers()) coordinator_->adopt(std::move(follower));
  search_.connect_to_self({reach(), succession_port_});
  take_search_results();
}

// Its sockets stay open to redirect nodes to the host.
void GroupRendezvous::step_down(const std::string& why) {
  const auto later = coordinator_->superseded_by();
  // Unless a node of the last round knows better.
  unused_epoch_ = std::max(unused_epoch_, coordinator_->later_epoch());
  rests_until_ = Clock::now() + heartbeat_;  // two hosts would depose each other in turn
  const auto listeners = coordinator_->take_listeners();
  if (!listeners.empty()) succession_port_ = port_of(listeners.front());
  signpost_.listen(listeners);
  holds_endpoint_ = at_endpoint_;
  coordinator_.reset();
  visit_.reset();
  lose_job(why, GroupEvent::kDeposed, later ? Place{later->address, later->port} : Place{});
}

// A node that has lost its host knows no address: the next host tells this one (take_directions).
void GroupRendezvous::make_way(const Place& place) {
  search_.forbid_hosting();
  tell_note(
      fmt::format("the job {} runs already: this node waits to join it", settings_.rules.run_id));
  search_.rest();
  waits_since_ = Clock::now();
  if (!place.address.empty()) follow(place);
}

// A newcomer that would have hosted a job of its own: the nodes of the other one ask here. So does
// the present host of a node that has lost an earlier one.
void GroupRendezvous::take_directions() {
  callers_.clear();
  for (const Status& heard : signpost_.take_heard()) {
    const bool idle = stage_ == Stage::kStanding ||
                      (waits_since_ && stage_ == Stage::kSearching && search_.is_idle());
    if (heard.run_id != settings_.rules.run_id || heard.address.empty()) continue;
    callers_.push_back({{heard.address, heard.port}, Inquiry::Found::kAnswer, heard});
    if (!idle) continue;
    handle_event(GroupEvent::kNamed, "", {heard.address, heard.port});
  }
  if (waits_since_ && Clock::now() >= *waits_since_ + settings_.rules.join_timeout) {
    tell_end(fmt::format("the job {} runs already, and its host could not be reached within {}",
                         settings_.rules.run_id, seconds_text(settings_.rules.join_timeout)));
    waits_since_.reset();
  }
}

// Where other machines reach this node, numeric.
std::string GroupRendezvous::reach() const {
  return parse_address(settings_.local_addr, 0) ? settings_.local_addr : own_numeric_;
}

// Where the others reach this node.
std::string GroupRendezvous::own_address() const {
  return settings_.local_addr.empty() ? own_numeric_ : settings_.local_addr;
}

// In the round of epoch_.
bool GroupRendezvous::was_alone() const {
  if (returned_ || !last_round_) return last_members_.alone;
  return last_round_->took_part && last_round_->round.info.group_world_size == 1;
}

void GroupRendezvous::say_hello() {
  handle_event(GroupEvent::kConnected);
  if (!resumes()) heard_ = held_since_ = Clock::now();
  next_beat_ = Clock::now() + settings_.rules.heartbeat;
  own_numeric_ = channel_->local_address();
  if (!coordinator_) prepare_place();
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
                       .agreed = agreed_values(settings_.rules),
                       .sort_key = settings_.sort_key,
                       .port = succession_port_,
                       .member = member_,
                       .epoch = epoch_,
                       .returned = returned_,
                       .alone = was_alone(),
                       .session = resumes() ? host_id_ : "",
                       .received = resumes() ? session_.received() : 0});
}

void GroupRendezvous::enter(const Welcome& welcome) {
  own_node_ = welcome.node;
  heartbeat_ = welcome.heartbeat;
  patience_ = welcome.patience;
  next_beat_ = Clock::now();
  handle_event(GroupEvent::kWelcome);
  authority_->settle(/*hosts=*/coordinator_ != nullptr);
  candidacy_.reset();
  waits_since_.reset();
  hold_noted_ = false;
  const bool resumed = std::exchange(sought_, Sought::kAnyHost) == Sought::kSameHost;
  const bool left_behind = resumed && !welcome.resumed;
  if (welcome.resumed) {
    session_.confirm(welcome.received);
    for (const auto& text : session_.unconfirmed()) channel_->send_text(*text);
    return;
  }
  session_ = {};
  host_id_ = welcome.session;
  if (left_behind) {
    lost_text_ = "the other nodes gave up on this one";
    rejoin();
    if (!in_round_ && !wants_round_ && !join_is_due_) lose_round();
  }
  if (withdrawn_) return withdraw(std::exchange(withdrawn_, std::nullopt)->why);
  if (wants_round_) send_join();
}

void GroupRendezvous::refused(const std::string& why) {
  const std::string text =
      fmt::format("the rendezvous at {} refused this node: {}", search_.present_text(), why);
  if (!last_round_) throw LaunchError(kExitFailed, text);
  tell_end(text);
}

}  // namespace ddp::launch
