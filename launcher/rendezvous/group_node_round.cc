// A node's part in the rounds of the job, as its host conducts them.
#include <algorithm>

#include "launcher/base/text.h"
#include "launcher/rendezvous/group_node.h"

namespace ddp::launch {

// Whether workers are running here.
bool GroupNode::works() const {
  return state_.round.work == Work::kRunning || state_.round.work == Work::kLost;
}

void GroupNode::say(const ControlMessage& message) {
  state_.host.session.sent(message);
  if (state_.host.open) act(actions::Send{message});
}

void GroupNode::send_join() { act(actions::OpenStore{own_address()}); }

void GroupNode::on(const events::WorkerFailed& event) {
  if (has_host() && state_.round.work == Work::kRunning) say(Failed{event.failure});
}

void GroupNode::on(const events::Inspected& event) {
  if (!state_.host.open || state_.stage != GroupStage::kMember) return;
  Alive alive = event.part;
  alive.received = state_.host.session.received();
  alive.pace = state_.round.pace;
  act(actions::Send{std::move(alive)});
}

void GroupNode::on(const events::WorkersEnded& event) {
  const bool lost = state_.round.work == Work::kLost;
  if (works()) state_.round.work = Work::kNone;
  state_.round.end = event.end;
  if (state_.stage == GroupStage::kOrphaned) return tell_end(state_.host.lost_because);
  if (state_.stage == GroupStage::kOver) return;
  if (lost) return end_lost_round();
  if (has_host()) say(event.end);
}

// None of its workers runs any more.
void GroupNode::end_lost_round() {
  state_.round.work = Work::kDue;
  JobNews news = make_news(JobNews::Kind::kRestart,
                           state_.hosting.active ? "restarting with the remaining nodes"
                                                 : "looking for the next host of the rendezvous");
  news.verdict.restart = true;
  act(actions::CloseStore{});
  tell(std::move(news));
}

// What runs here no longer belongs to the job.
void GroupNode::abandon_round() {
  state_.round.proposed = false;
  if (state_.round.work != Work::kRunning) return;
  state_.round.work = Work::kLost;
  tell(
      make_news(JobNews::Kind::kStop, state_.host.lost_because + "; the workers here are stopped"));
}

// In the round of the last accepted epoch.
bool GroupNode::was_alone() const {
  const auto& last = state_.round.last;
  if (state_.quest.returned || !last) return state_.quest.last_members.alone;
  return last->took_part && last->round.info.group_world_size == 1;
}

void GroupNode::remember(const Round& round, bool took_part) {
  state_.round.last = {.round = round,
                       .node = state_.host.node,
                       .took_part = took_part,
                       .begun = !took_part,  // spares are notified afterwards
                       .host_id = state_.host.id,
                       .host = sight_.present};
  LastMembers members{.member = state_.member, .epoch = state_.round.epoch, .alone = was_alone()};
  if (!state_.hosting.active) members.places.push_back(sight_.present);
  for (const Successor& one : round.successors) {
    if (one.node != state_.host.node && one.port > 0)
      members.places.push_back({one.address, one.port});
  }
  // Members of an earlier round may continue without this node once it is lost; then it asks them.
  if (members.places.empty()) members.places = state_.quest.last_others;
  state_.quest.last_others = members.places;
  act(actions::WriteMembers{std::move(members)});
}

// ---- what the host says ------------------------------------------------------------------------

void GroupNode::receive(const Alive& alive) {
  state_.host.session.confirm(alive.received);
  state_.host.straggler = alive.straggler;
  state_.host.partly_done = alive.partly_done;
  if (auto& part = state_.host.partly_done) part->nodes = printable(part->nodes);
  if (alive.stacks) tell(make_news(JobNews::Kind::kStacks, ""));
  if (alive.asks_status) tell(make_news(JobNews::Kind::kAsksStatus, ""));
  if (alive.status) {
    JobNews news = make_news(JobNews::Kind::kStatus, "");
    news.node = alive.status->node;
    for (const auto line : lines_of(alive.status->table)) news.text += printable(line) + "\n";
    tell(std::move(news));
  }
}

void GroupNode::receive(const Refused& refused) {
  state_.host.heard = {};  // they may have gone on already
  lose_job("the other nodes gave up on this one: " + refused.why);
}

void GroupNode::receive(const Round& round) {
  state_.round.proposed = true;
  state_.round.epoch = round.info.epoch;
  state_.round.unused_epoch = -1;
  state_.quest.last_members = {};
  state_.quest.returned = false;
  remember(round, /*took_part=*/true);  // on disk before the vote is given
  say(Accepted{round.info.epoch});
}

void GroupNode::receive(const Go& go) {
  RoundPart& part = state_.round;
  if (!part.proposed || go.epoch != part.epoch) return;
  part.proposed = false;
  part.work = Work::kRunning;
  part.last->begun = true;
  state_.host.partly_done.reset();  // of the last round
  JobNews news;
  news.round = part.last->round.info;
  if (news.round.group_rank != 0) act(actions::CloseStore{});
  // As given here: a name of the first node may be known on this node only.
  if (settings_.rules.fixed_ranks) news.round.master_addr = settings_.rules.master_addr;
  news.round.agent_store = !settings_.rank0_store;
  tell(std::move(news));
}

void GroupNode::receive(const Stop& stop) {
  if (!works()) return;
  JobNews news = make_news(JobNews::Kind::kStop, stop.text);
  news.leaving = stop.leaving;
  tell(std::move(news));
}

void GroupNode::receive(const Verdict& verdict) {
  JobNews news =
      make_news(verdict.over ? JobNews::Kind::kEnd : JobNews::Kind::kRestart, verdict.text);
  news.verdict = verdict.verdict;
  news.failures = verdict.failures;
  news.outcome = verdict.outcome;
  const auto& mine = state_.round.end.failures;
  for (ProcessFailure& failure : news.failures) {
    const bool own = std::any_of(mine.begin(), mine.end(), [&](const ProcessFailure& one) {
      return failure.host == settings_.host_name && one.pid == failure.pid &&
             one.rank == failure.rank;
    });
    if (own) failure.host.clear();
  }
  if (verdict.over) {
    move(GroupEvent::kEnd);
    // Excluded as a node: the others continue under another host.
    act(actions::Retire{.hand_over = true});
    act(actions::RemoveMembers{});
    act(actions::EndJob{});
  } else {
    // All workers of the round have ended, and none of the next can have begun.
    act(actions::CloseStore{});
    if (state_.round.work == Work::kNone) state_.round.work = Work::kDue;
  }
  tell(std::move(news));
}

}  // namespace ddp::launch
