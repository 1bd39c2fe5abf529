#include "launcher/rendezvous/group_node.h"

#include <fmt/format.h>

#include "launcher/base/text.h"

namespace ddp::launch {
namespace {

// Who sends nodes to a place need not know better at once.
constexpr std::chrono::milliseconds kRetry{20};

}  // namespace

NodeState new_node(const GroupSettings& settings, std::string id, Clock::time_point now) {
  NodeState state{.id = id, .member = std::move(id), .local_address = settings.local_addr};
  state.quest.may_host =
      settings.rules.fixed_ranks ? settings.node_rank == 0 : settings.is_host.value_or(true);
  state.awake = now;
  return state;
}

std::vector<NodeAction> GroupNode::handle(const NodeEvent& event, const Sight& sight) {
  sight_ = sight;
  std::visit([this](const auto& one) { on(one); }, event);
  return std::exchange(actions_, {});
}

GroupSituation GroupNode::situation() const {
  const Quest& quest = state_.quest;
  return {.stage = state_.stage,
          .sought = quest.sought,
          .has_round = state_.round.last.has_value(),
          .fixed_ranks = settings_.rules.fixed_ranks,
          .authority_leads = authority_leads_,
          .may_host = quest.may_host,
          .holds_endpoint = quest.holds_endpoint,
          .candidate = quest.candidacy.has_value(),
          .waits = quest.waits_since.has_value()};
}

void GroupNode::move(GroupEvent event, const std::string& why, const Place& place) {
  const GroupMove move = next_move(situation(), event);
  state_.stage = move.stage;
  switch (move.action) {
    case GroupAction::kNone:
      return;
    case GroupAction::kDefect:  // no reason to end a job
      return tell_note(fmt::format("a defect of ddp-run, please report it: event {} in stage {}",
                                   static_cast<int>(event),
                                   kStageNames[static_cast<std::size_t>(state_.stage)]));
    case GroupAction::kSearch:
      return search();
    case GroupAction::kStand:
      return stand();
    case GroupAction::kWait:
      return wait_for_host();
    case GroupAction::kFollow:
      return follow(place);
    case GroupAction::kTryAnother:
      return try_another(why);
    case GroupAction::kTryLater:
      state_.quest.retry_at = now() + kRetry;
      return;
    case GroupAction::kResume:
      return resume(why);
    case GroupAction::kLose:
      return lose_host(why);
    case GroupAction::kSeek:
      return seek();
    case GroupAction::kHost:
      return host_at_endpoint();
    case GroupAction::kTakeOver:
      return take_over();
    case GroupAction::kMakeWay:
      return make_way(place);
    case GroupAction::kOrphan:
      return orphan();
  }
}

// ---- the agent ---------------------------------------------------------------------------------

void GroupNode::on(const events::Connect&) {
  if (state_.stage == GroupStage::kIdle) move(GroupEvent::kStart);
}

void GroupNode::on(const events::Join&) {
  state_.round.work = Work::kAwaited;
  if (has_host()) return send_join();
  on(events::Connect{});
}

// With fixed ranks the others would wait for this node.
void GroupNode::on(const events::Withdraw& event) {
  if (settings_.rules.fixed_ranks && !has_host() && state_.stage != GroupStage::kOver) {
    tell_note(event.why + "; the other nodes will be told as soon as the first one is there");
    state_.round.withdrawn = Leave{.why = event.why};
    return;
  }
  leave(Leave{.why = event.why});
  tell_end(event.why);
}

void GroupNode::leave(const Leave& leave) {
  act(actions::Retire{.hand_over = !settings_.rules.fixed_ranks});
  act(actions::Resign{});
  state_.hosting.claims_left = 0;
  if (has_host()) say(leave);
}

void GroupNode::tell_note(const std::string& text) { tell(make_news(JobNews::Kind::kNote, text)); }

void GroupNode::tell_end(const std::string& why) {
  move(GroupEvent::kEnd);
  tell(failed_end(why));
}

// ---- a turn of the loop ------------------------------------------------------------------------

// Others may have given up on this node while it was suspended.
void GroupNode::on(const events::TurnBegins&) {
  const HostLink& host = state_.host;
  const auto slept = now() - std::exchange(state_.awake, now());
  if (slept > std::max(host.patience - host.heartbeat, host.patience / 2)) state_.stalled = now();
  state_.quest.callers.clear();
}

void GroupNode::on(const events::RepliesRead&) {
  sight_.now = state_.awake;
  ask_last_members();
  Hosting& own = state_.hosting;
  if (own.active && own.claims_left > 0 && now() >= own.claim_at) act(actions::Claim{});
}

// A process that was stopped in this turn has not read what came meanwhile.
void GroupNode::on(const events::TurnEnds&) {
  sight_.now = state_.awake;
  retry();
  judge_wait();
  if (state_.host.open) keep_time();
  if (state_.stage == GroupStage::kStanding) decide();
  if (seeks()) open_port();
}

void GroupNode::retry() {
  auto& retry_at = state_.quest.retry_at;
  if (!retry_at || now() < *retry_at) return;
  retry_at.reset();
  if (resumes() || (state_.stage == GroupStage::kSearching && sight_.exhausted))
    move(GroupEvent::kStart, state_.host.closed_because);
}

void GroupNode::keep_time() {
  HostLink& host = state_.host;
  const bool held = state_.stage == GroupStage::kGreeting;  // by a node without a host, perhaps
  if ((held || state_.stage == GroupStage::kMember) && now() >= host.next_beat) {
    act(actions::Send{
        held ? Alive{} : Alive{.received = host.session.received(), .pace = state_.round.pace}});
    host.next_beat = now() + (held ? settings_.rules.heartbeat : host.heartbeat);
  }
  if (const auto due = hold_note_due(sight_); due && now() >= *due) {
    state_.quest.hold_noted = true;
    tell_note(
        fmt::format("waiting at {}: that node has lost the host of the job {} and looks for "
                    "the next one",
                    place_text(sight_.present), settings_.rules.run_id));
  }
  if (now() - host.heard < host.patience || state_.stage == GroupStage::kOver) return;
  move(GroupEvent::kSilent, "it has been silent for " + seconds_text(host.patience));
}

std::optional<Clock::time_point> GroupNode::deadline(const Sight& sight) const {
  const auto& [stage, host, quest, hosting] =
      std::tie(state_.stage, state_.host, state_.quest, state_.hosting);
  auto next = earlier(quest.retry_at, hold_note_due(sight));
  if (quest.sought == Sought::kNextHost && hosting.rests_until > state_.awake)
    next = earlier(next, hosting.rests_until);
  if (quest.candidacy) next = earlier(next, next_judgement(sight));
  if (quest.waits_since) next = earlier(next, *quest.waits_since + settings_.rules.join_timeout);
  if (hosting.active && hosting.claims_left > 0) next = earlier(next, hosting.claim_at);
  if (!host.open || stage == GroupStage::kOver) return next;
  if (stage == GroupStage::kMember || stage == GroupStage::kGreeting)
    next = earlier(next, host.next_beat);
  return earlier(next, host.heard + host.patience);
}

// ---- what other agents learn -------------------------------------------------------------------

Hello GroupNode::hello() const {
  const NodeState& node = state_;
  return {.id = node.id,
          .run_id = settings_.rules.run_id,
          .min_nodes = settings_.rules.min_nodes,
          .max_nodes = settings_.rules.max_nodes,
          .node_rank = settings_.node_rank,
          .host = settings_.host_name,
          .address = node.local_address,
          .local_world_size = settings_.local_world_size,
          .role = settings_.role,
          .max_restarts = settings_.rules.restarts.max_restarts,
          .agreed = agreed_values(settings_.rules),
          .sort_key = settings_.sort_key,
          .port = node.hosting.port,
          .member = node.member,
          .epoch = node.round.epoch,
          .returned = node.quest.returned,
          .alone = was_alone(),
          .session = resumes() ? node.host.id : "",
          .received = resumes() ? node.host.session.received() : 0};
}

// A node that has returned knows its last round's epoch, but has no part in that round any more.
Status GroupNode::status(const Sight& sight) const {
  Status status{.id = state_.id,
                .run_id = settings_.rules.run_id,
                .epoch = state_.round.last ? state_.round.epoch : -1};
  if (state_.stage != GroupStage::kMember) return status;
  status.hosts = state_.hosting.active;
  status.address = sight.present.address;
  status.port = sight.present.port;
  return status;
}

std::optional<Place> GroupNode::holder(const Sight& sight) const {
  const bool waits = state_.stage == GroupStage::kGreeting &&
                     state_.quest.sought == Sought::kAnyHost && !state_.hosting.active;
  return waits ? std::optional(sight.present) : std::nullopt;
}

std::optional<Clock::time_point> GroupNode::hold_note_due(const Sight& sight) const {
  return holder(sight) && !state_.quest.hold_noted
             ? std::optional(state_.quest.held_since + kSilentWait)
             : std::nullopt;
}

// Where other machines reach this node, numeric.
Place GroupNode::own_place() const {
  const bool numeric = parse_address(state_.local_address, 0).has_value();
  return {numeric ? state_.local_address : state_.numeric_address, state_.hosting.port};
}

// Where the others reach this node.
std::string GroupNode::own_address() const {
  return state_.local_address.empty() ? state_.numeric_address : state_.local_address;
}

}  // namespace ddp::launch
