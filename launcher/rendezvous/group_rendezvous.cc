#include "launcher/rendezvous/group_rendezvous.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/random_hex.h"
#include "launcher/base/system/sockets.h"
#include "launcher/base/text.h"
#include "launcher/rendezvous/follow/election.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr auto kSeeOff = std::chrono::seconds(5);
// Who sends nodes to a place need not know better at once.
constexpr std::chrono::milliseconds kRetry{20};

SearchSettings search_settings(const GroupSettings& settings) {
  const bool fixed = settings.rules.fixed_ranks;
  SearchSettings search{.endpoints = settings.endpoints()};
  search.must_host = fixed ? settings.node_rank == 0 : settings.is_host.value_or(false);
  search.may_host = !fixed && settings.is_host.value_or(true);
  search.token = settings.token;
  search.timeout = settings.connect_timeout;
  search.reach_note = settings.rules.reach_note;
  return search;
}

}  // namespace

GroupRendezvous::GroupRendezvous(GroupSettings settings, std::unique_ptr<Authority> authority)
    : settings_(std::move(settings)),
      id_(random_sixteen_digits()),
      member_(id_),
      search_(search_settings(settings_)),
      store_(settings_.shares_port() ? settings_.port : 0, settings_.rank0_store),
      signpost_(settings_.token, settings_.rules.patience()),
      authority_(authority ? std::move(authority) : std::make_unique<Election>(settings_)),
      members_file_(settings_.members_file, settings_.rules.run_id, settings_.endpoints()),
      watch_(settings_.endpoints()),
      awake_(Clock::now()) {
  if (!settings_.shares_port()) settings_.rules.master_port = 0;
}

GroupRendezvous::~GroupRendezvous() {
  if (channel_) channel_->finish_sending();
  if (coordinator_) {
    coordinator_->handle({});  // its own agent's last words come first
    channel_.reset();
    if (coordinator_->over()) coordinator_->see_off(Clock::now() + kSeeOff);
  }
}

GroupSituation GroupRendezvous::situation() const {
  return {.stage = stage_,
          .sought = sought_,
          .has_round = last_round_.has_value(),
          .fixed_ranks = settings_.rules.fixed_ranks,
          .authority_leads = authority_->finds_first_host(),
          .may_host = search_.may_host(),
          .holds_endpoint = holds_endpoint_,
          .candidate = candidacy_.has_value(),
          .waits = waits_since_.has_value()};
}

void GroupRendezvous::handle_event(GroupEvent event, const std::string& why, const Place& place) {
  const GroupMove move = next_move(situation(), event);
  stage_ = move.stage;
  switch (move.action) {
    case GroupAction::kNone:
      return;
    case GroupAction::kDefect:  // no reason to end a job
      return tell_note(fmt::format("a defect of ddp-run, please report it: event {} in stage {}",
                                   static_cast<int>(event),
                                   kStageNames[static_cast<std::size_t>(stage_)]));
    case GroupAction::kSearch:
      return search();
    case GroupAction::kStand:
      return stand();
    case GroupAction::kWait:
      return wait_for_host();
    case GroupAction::kFollow:
      return follow(place);
    case GroupAction::kTryAnother:
      return leave_candidate(why);
    case GroupAction::kTryLater:
      retry_at_ = Clock::now() + kRetry;
      return;
    case GroupAction::kResume:
      return reconnect(why);
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

// ---- a job's course ---------------------------------------------------------------------------

void GroupRendezvous::say(const ControlMessage& message) {
  session_.sent(message);
  if (channel_) channel_->send(message);
}

void GroupRendezvous::send_join() { say(Join{store_.prepare(own_address())}); }

void GroupRendezvous::report_failure(const ProcessFailure& failure) {
  if (has_host() && in_round_ && !round_is_lost_) say(Failed{failure});
}

void GroupRendezvous::report_end(NodeEnd end) {
  in_round_ = false;
  last_end_ = std::move(end);
  if (stage_ == Stage::kOrphaned) return tell_end(lost_text_);
  if (stage_ == Stage::kOver) return;
  if (round_is_lost_) return lose_round();
  if (has_host()) say(Ended{last_end_.failures, last_end_.stopped, last_end_.preempted});
}

// None of its workers runs any more.
void GroupRendezvous::lose_round() {
  round_is_lost_ = false;
  join_is_due_ = true;
  JobNews news = make_news(JobNews::Kind::kRestart,
                           coordinator_ ? "restarting with the remaining nodes"
                                        : "looking for the next host of the rendezvous");
  news.verdict.restart = true;
  store_.close();
  tell(std::move(news));
}

void GroupRendezvous::leave(int signal) { leave_because(Leave{.signal = signal}); }

void GroupRendezvous::leave_because(const Leave& leave) {
  if (coordinator_) coordinator_->retire(/*hand_over=*/!settings_.rules.fixed_ranks);
  authority_->resign();
  claims_left_ = 0;
  if (has_host()) say(leave);
}

// With fixed ranks the others would wait for this node.
void GroupRendezvous::withdraw(const std::string& why) {
  if (settings_.rules.fixed_ranks && !has_host() && stage_ != Stage::kOver) {
    tell_note(why + "; the other nodes will be told as soon as the first one is there");
    withdrawn_ = Leave{.why = why};
    return;
  }
  leave_because(Leave{.why = why});
  tell_end(why);
}

std::optional<JobNews> GroupRendezvous::take_news() { return take_oldest(news_); }

void GroupRendezvous::receive(const ControlMessage& message) {
  heard_ = Clock::now();
  if (stage_ == Stage::kMember) return receive_as_member(message);
  if (const auto* m = std::get_if<Refused>(&message)) return refused(m->why);
  if (const auto* m = std::get_if<Welcome>(&message)) return enter(*m);
  if (const auto* m = std::get_if<Status>(&message)) redirect(*m);
}

void GroupRendezvous::receive_as_member(const ControlMessage& message) {
  session_.receive(message);
  if (const auto* m = std::get_if<Alive>(&message)) {
    session_.confirm(m->received);
    straggler_ = m->straggler;
  }
  if (const auto* m = std::get_if<Refused>(&message)) {
    heard_ = {};  // they may have gone on already
    return lose_job("the other nodes gave up on this one: " + m->why);
  }
  if (const auto* m = std::get_if<Round>(&message)) receive(*m);
  if (const auto* m = std::get_if<Go>(&message); m && proposed_ && m->epoch == epoch_)
    begin_round();
  if (const auto* m = std::get_if<Standby>(&message)) {
    remember(m->round, /*took_part=*/false);
  }
  if (const auto* m = std::get_if<Verdict>(&message)) receive(*m);
  if (const auto* m = std::get_if<Note>(&message)) tell_note(m->text);
  if (const auto* m = std::get_if<Stop>(&message); m && in_round_) {
    JobNews news = make_news(JobNews::Kind::kStop, m->text);
    news.leaving = m->leaving;
    tell(std::move(news));
  }
}

void GroupRendezvous::receive(const Round& round) {
  proposed_ = true;
  epoch_ = round.info.epoch;
  unused_epoch_ = -1;
  last_members_ = {};
  returned_ = false;
  remember(round, /*took_part=*/true);  // on disk before the vote is given
  say(Accepted{epoch_});
}

void GroupRendezvous::begin_round() {
  proposed_ = wants_round_ = false;
  last_round_->begun = true;
  in_round_ = true;
  if (last_round_->round.info.group_rank != 0) store_.close();
  JobNews news;
  news.round = last_round_->round.info;
  // As given here: a name of the first node may be known on this node only.
  if (settings_.rules.fixed_ranks) news.round.master_addr = settings_.rules.master_addr;
  news.round.agent_store = !settings_.rank0_store;
  news.round.store_socket = store_.source();
  tell(std::move(news));
}

void GroupRendezvous::receive(const Verdict& verdict) {
  JobNews news =
      make_news(verdict.over ? JobNews::Kind::kEnd : JobNews::Kind::kRestart, verdict.text);
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
  if (!verdict.over) store_.close();
  join_is_due_ = !verdict.over;
  if (verdict.over) {
    handle_event(GroupEvent::kEnd);
    // Excluded as a node: the others continue under another host.
    if (coordinator_ && !coordinator_->over()) coordinator_->retire(/*hand_over=*/true);
    members_file_.remove();
    authority_->end_job();
  }
  tell(std::move(news));
}

void GroupRendezvous::tell_note(const std::string& text) {
  tell(make_news(JobNews::Kind::kNote, text));
}

void GroupRendezvous::tell_end(const std::string& why) {
  handle_event(GroupEvent::kEnd);
  tell(failed_end(why));
}

void GroupRendezvous::lose_host(const std::string& why, bool gone) {
  host_gone_ = gone;
  lose_job(
      fmt::format("the host of the rendezvous, {}, was lost: {}", search_.present_text(), why));
}

void GroupRendezvous::lose_job(const std::string& text, GroupEvent event, const Place& place) {
  channel_.reset();
  sought_ = Sought::kAnyHost;
  retry_at_.reset();
  lost_text_ = text;
  handle_event(event, "", place);
}

void GroupRendezvous::orphan() {
  rejoin();
  round_is_lost_ = false;
  if (!in_round_) tell_end(lost_text_);
}

// What runs here no longer belongs to the job.
void GroupRendezvous::rejoin() {
  if (in_round_ && !round_is_lost_)
    tell(make_news(JobNews::Kind::kStop, lost_text_ + "; the workers here are stopped"));
  round_is_lost_ = in_round_;
  proposed_ = false;
}

// ---- the loop ---------------------------------------------------------------------------------

void GroupRendezvous::add_poll_fds(std::vector<pollfd>& fds) const {
  search_.add_poll_fds(fds);
  if (coordinator_) coordinator_->add_poll_fds(fds);
  store_.add_poll_fds(fds);
  signpost_.add_poll_fds(fds);
  if (candidacy_) candidacy_->inquiry.add_poll_fds(fds);
  if (watches_endpoints()) watch_.add_poll_fds(fds);
  authority_->add_poll_fds(fds);
  if (visit_) visit_->add_poll_fds(fds);
  if (channel_ && channel_->fd() >= 0) fds.push_back({channel_->fd(), channel_->wanted(), 0});
}

void GroupRendezvous::handle(const std::vector<pollfd>& fds) {
  // Others may have given up on this node while it was suspended.
  const auto slept = Clock::now() - std::exchange(awake_, Clock::now());
  if (slept > std::max(patience_ - heartbeat_, patience_ / 2)) stalled_ = Clock::now();
  obey_authority();
  signpost_.say(status(), holder());
  signpost_.handle(fds);
  if (const std::string note = signpost_.take_note(); !note.empty()) tell_note(note);
  take_directions();
  visit_endpoint();
  if (watches_endpoints()) watch_.handle(fds);
  if (candidacy_) candidacy_->inquiry.handle(fds);
  check_last_members();
  search_.handle(fds);
  take_search_results();
  retry();
  if (coordinator_) {
    claim_endpoint();
    coordinator_->handle(fds);
    authority_->request_epoch(coordinator_->awaits_epoch().value_or(std::vector<Hello>{}));
    if (const std::string note = coordinator_->take_note(); !note.empty()) tell_note(note);
    if (coordinator_->has_lost_mandate()) {
      // A round that others have accepted is its own, too.
      if (channel_ && last_round_) handle_channel();
      step_down("too few nodes of the last round follow this host");
    }
  }
  store_.handle(fds);
  if (channel_) handle_channel();
  if (channel_) keep_time();
  if (stage_ == Stage::kStanding) decide();
  if (stage_ == Stage::kSeeking || (stage_ == Stage::kGreeting && seeks())) find_host();
}

// First of all: a host that has lost its place stops its workers before it does anything else.
void GroupRendezvous::obey_authority() {
  authority_->handle({});
  if (!coordinator_) return;
  if (const std::string why = authority_->deposed(); !why.empty()) {
    coordinator_->dismiss("this node's host has stepped down: " + why);
    return step_down(why);
  }
  if (const auto epoch = authority_->take_epoch()) coordinator_->grant_epoch(*epoch);
  if (const std::string note = authority_->take_note(); !note.empty()) tell_note(note);
}

void GroupRendezvous::handle_channel() {
  channel_->handle();
  while (channel_ && stage_ != Stage::kOver) {
    const auto message = channel_->take();
    if (!message) break;
    receive(*message);
  }
  if (!channel_ || channel_->state() != ControlChannel::State::kClosed || stage_ == Stage::kOver)
    return;
  const std::string why = channel_->problem();
  const bool misunderstood = !channel_->peer_is_gone();  // it would send the same again
  if (stage_ == Stage::kMember && misunderstood) return lose_host(why);
  handle_event(GroupEvent::kClosed, why);
}

void GroupRendezvous::keep_time() {
  const auto now = Clock::now();
  const bool held = stage_ == Stage::kGreeting;  // by a node that has no host yet, perhaps
  if ((held || stage_ == Stage::kMember) && now >= next_beat_) {
    channel_->send(held ? Alive{} : Alive{.received = session_.received(), .pace = pace_});
    next_beat_ = now + (held ? settings_.rules.heartbeat : heartbeat_);
  }
  note_hold(now);
  if (now - heard_ < patience_ || stage_ == Stage::kOver) return;
  handle_event(GroupEvent::kSilent, "it has been silent for " + seconds_text(patience_));
}

std::optional<Clock::time_point> GroupRendezvous::deadline() const {
  std::optional<Clock::time_point> next = search_.deadline();
  const auto consider = [&](std::optional<Clock::time_point> time) {
    if (time && (!next || *time < *next)) next = time;
  };
  consider(signpost_.deadline());
  consider(retry_at_);
  consider(hold_note_due());
  if (seeks() && rests_until_ > awake_) consider(rests_until_);
  consider(authority_->deadline());
  if (candidacy_) {
    consider(candidacy_->inquiry.deadline());
    consider(next_judgement());
  }
  if (watches_endpoints()) consider(watch_.deadline());
  if (waits_since_) consider(*waits_since_ + settings_.rules.join_timeout);
  if (visit_) consider(visit_->deadline());
  if (visit_) consider(next_visit_);
  if (coordinator_) consider(coordinator_->deadline());
  if (coordinator_ && claims_left_ > 0) consider(claim_at_);
  if (channel_ && (stage_ == Stage::kMember || stage_ == Stage::kGreeting)) consider(next_beat_);
  if (channel_ && stage_ != Stage::kOver) consider(heard_ + patience_);
  return next;
}

}  // namespace ddp::launch
