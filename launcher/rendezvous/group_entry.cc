// How an agent becomes a member of the group: it finds the host of the rendezvous or is the host.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/sockets.h"
#include "launcher/base/text.h"
#include "launcher/rendezvous/epochs.h"
#include "launcher/rendezvous/group_rendezvous.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr int kClaims = 50;

}  // namespace

void GroupRendezvous::connect() {
  if (stage_ == Stage::kIdle) search();
}

void GroupRendezvous::join() {
  wants_round_ = true;
  join_is_due_ = false;
  if (has_host()) return send_join();
  connect();
}

void GroupRendezvous::search() {
  if (authority_->finds_first_host()) return seek();
  if (!candidacy_) ask_around();
  if (holds_endpoint_ && search_.may_host()) return stand({});
  if (holds_endpoint_) return wait_for_host();
  move_to(Stage::kSearching);
  search_.begin();
  take_search_results();
}

// At an endpoint, where the host of the job that runs looks for nodes.
void GroupRendezvous::wait_for_host() {
  channel_.reset();
  search_.rest();
  move_to(Stage::kSearching);
  waits_since_ = Clock::now();
}

// ---- a connection that ends, and a host that is lost -------------------------------------------

// Messages on their way are sent again: to the job it is as if nothing had happened.
void GroupRendezvous::reconnect(const std::string& why) {
  channel_.reset();
  resuming_ = true;
  reconnect_why_ = why;
  move_to(Stage::kSearching);
  search_.follow({search_.present()}, patience_);
  take_search_results();
}

void GroupRendezvous::retry() {
  if (!retry_at_ || Clock::now() < *retry_at_) return;
  retry_at_.reset();
  if (resuming_) return reconnect(reconnect_why_);
  if (stage_ == Stage::kSearching && search_.exhausted()) search();
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
  move_to(Stage::kSeeking);
  seeking_ = true;
  std::optional<Authority::Loss> loss;
  if (last_round_) {
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
  if (!visit_) return view;
  for (const auto& finding : visit_->findings()) {
    if (can_follow(finding.status.epoch, epoch)) view.endpoints.push_back(finding);
  }
  return view;
}

// Where a node that knows no host waits. Of nodes that have lost one, two may hold each other.
std::optional<Place> GroupRendezvous::holder() const {
  const bool waits = stage_ == Stage::kGreeting && !seeking_ && !resuming_ && !coordinator_;
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
  if (step.kind == Authority::Step::Kind::kHost && now >= rests_until_) {
    channel_.reset();
    return take_over();
  }
  if (const std::string why = authority_->despair(now); !why.empty()) return tell_end(why);
  if (step.kind != Authority::Step::Kind::kConnect) return;
  if (held && step.place == search_.present()) return;
  channel_.reset();
  move_to(Stage::kSearching);
  search_.follow({step.place}, patience_);
  take_search_results();
}

// The agent that was connected to hosts nothing.
void GroupRendezvous::redirect(const Status& status) {
  if (resuming_) {
    heard_ = {};  // the others may have gone on already
    return lose_host("it has left the job to another host");
  }
  if (seeking_ || !status.has_host() || status.hosts)
    return leave_candidate("it does not host the rendezvous");
  channel_.reset();
  move_to(Stage::kSearching);
  search_.follow({{status.address, status.port}}, patience_);
  take_search_results();
}

// It did not become this node's host.
void GroupRendezvous::leave_candidate(const std::string& why) {
  constexpr std::chrono::milliseconds kAvoided{500};
  channel_.reset();
  if (seeking_) {
    authority_->avoid(search_.present());
    move_to(Stage::kSeeking);
    return;
  }
  if (candidacy_) {
    candidacy_->newcomer.avoid(search_.present(), Clock::now() + kAvoided);
  }
  if (candidacy_ && holds_endpoint_) {
    move_to(Stage::kStanding);
    return;
  }
  move_to(Stage::kSearching);
  search_.try_another(why);
  take_search_results();
}

void GroupRendezvous::take_search_results() {
  constexpr std::chrono::milliseconds kRetry{20};
  if (stage_ != Stage::kSearching) return;
  if (auto listeners = search_.take_listeners(); !listeners.empty()) {
    if (settings_.local_addr.empty()) settings_.local_addr = search_.own().elsewhere();
    at_endpoint_ = true;
    return stand(std::move(listeners));
  }
  if (const std::string note = search_.take_note(); !note.empty()) tell_note(note);
  if (search_.exhausted() && !retry_at_) {
    if (seeking_ || (candidacy_ && holds_endpoint_ && !resuming_)) return leave_candidate("");
    if (waits_since_) return;
    if (resuming_ && search_.was_refused()) return lose_host("its ddp-run is gone", /*gone=*/true);
    if (resuming_ && Clock::now() >= heard_ + patience_) return lose_host(reconnect_why_);
    retry_at_ = Clock::now() + kRetry;  // who sends nodes to a place need not know better at once
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
  seeking_ = false;
  if (last_round_) tell_note("this node hosts the rendezvous from now on");
  claims_left_ = authority_->finds_first_host() ? 0 : kClaims;
  claim_at_ = next_visit_ = Clock::now();
  host(std::move(history), signpost_.take_listeners());
  coordinator_->set_place(place());
  holds_endpoint_ = false;
  for (Follower& follower : signpost_.take_followers()) coordinator_->adopt(std::move(follower));
  move_to(Stage::kSearching);
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
  if (last_round_ || authority_->finds_first_host()) return lose_job(why);
  search_.forbid_hosting();
  tell_note(
      fmt::format("the job {} runs already: this node waits to join it", settings_.rules.run_id));
  // A node that has lost its host knows no address: the next host tells this one (take_directions).
  wait_for_host();
  if (later && !later->address.empty()) search_.follow({{later->address, later->port}}, patience_);
  take_search_results();
}

// A newcomer that would have hosted a job of its own: the nodes of the other one ask here.
void GroupRendezvous::take_directions() {
  for (const Status& heard : signpost_.take_heard()) {
    const bool idle = stage_ == Stage::kStanding ||
                      (waits_since_ && stage_ == Stage::kSearching && search_.is_idle());
    if (!idle || heard.run_id != settings_.rules.run_id || heard.address.empty()) continue;
    move_to(Stage::kSearching);
    search_.follow({{heard.address, heard.port}}, patience_);
    take_search_results();
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
  move_to(Stage::kGreeting);
  if (!resuming_) heard_ = held_since_ = Clock::now();
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
                       .session = resuming_ ? host_id_ : "",
                       .received = resuming_ ? session_.received() : 0});
}

void GroupRendezvous::enter(const Welcome& welcome) {
  own_node_ = welcome.node;
  heartbeat_ = welcome.heartbeat;
  patience_ = welcome.patience;
  next_beat_ = Clock::now();
  move_to(Stage::kMember);
  authority_->settle(/*hosts=*/coordinator_ != nullptr);
  seeking_ = false;
  candidacy_.reset();
  waits_since_.reset();
  hold_noted_ = false;
  const bool left_behind = std::exchange(resuming_, false) && !welcome.resumed;
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
