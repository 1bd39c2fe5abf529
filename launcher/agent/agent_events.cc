// How the agent handles events: exits, signals, losses, news of the other nodes.
#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/agent/agent.h"
#include "launcher/agent/failure_order.h"
#include "launcher/agent/worker_reports.h"
#include "launcher/base/signal_names.h"
#include "launcher/report/error_file.h"
#include "launcher/report/failure_report.h"

namespace ddp::launch {

void LocalElasticAgent::absorb(const std::vector<Event>& events) {
  stop_requests_.nothing_pending();
  for (const Event& event : events) {
    if (event.kind == Event::Kind::kSignal) absorb_signal(event);
    if (event.kind == Event::Kind::kGuardianGone) {
      guardian_gone_ = true;
      processes_.end_standby();
      rendezvous_.leave(0);
    }
    if (event.kind == Event::Kind::kHeartbeatBegan) {
      hangs_.heartbeat_began(processes_.now());
      pace_.heartbeat_began(processes_.now());
      // Writes to other files next to a heartbeat are reported as well, at any time.
      if (plan_.standby_workers && !standby_kept_) standby_due_ = processes_.now();
    }
    prepared_ = prepared_ || event.kind == Event::Kind::kPrepared;
    if (event.kind == Event::Kind::kStacksDumped) {
      end_stacks();
      if (phase_ == Phase::kDumping) ask_for_stacks(event.without_stacks);
    }
  }
  absorb_exits(events);
  for (const Event& event : events) {
    if (event.kind == Event::Kind::kCheckEnded) absorb_check(event);
  }
  for (const Event& event : events) {
    if (event.kind == Event::Kind::kStoreLost) absorb_store_loss(event);
  }
}

void LocalElasticAgent::absorb_news() {
  while (auto news = rendezvous_.take_news()) absorb_news(std::move(*news));
}

void LocalElasticAgent::absorb_news(JobNews news) {
  switch (news.kind) {
    case JobNews::Kind::kStart:
      next_round_ = std::move(news.round);
      break;
    case JobNews::Kind::kStop:
      if (running() > 0) processes_.note(news.text);
      asked_to_stop_ = std::move(news);
      asked_at_ = processes_.unix_time();
      break;
    case JobNews::Kind::kNote:
      processes_.note(news.text);
      break;
    case JobNews::Kind::kStacks:
      print_stacks();
      break;
    case JobNews::Kind::kAsksStatus:
      // Without workers, the number of this node is that of an earlier round.
      if (!group_.workers.empty())
        rendezvous_.report_status(
            {group_.rendezvous.group_rank, status_table(status(), kLongestTable)});
      break;
    case JobNews::Kind::kStatus:
      if (!status_due_ || news.node >= group_.rendezvous.group_world_size ||
          news.node == group_.rendezvous.group_rank)
        break;
      statuses_[news.node] = news.text;
      if (static_cast<int>(statuses_.size()) + 1 == group_.rendezvous.group_world_size)
        end_status();
      break;
    case JobNews::Kind::kRestart:
    case JobNews::Kind::kEnd:
      verdict_ = std::move(news);
      break;
  }
}

void LocalElasticAgent::absorb_signal(const Event& event) {
  if (event.ends_job) suspended_ = false;
  if (event.signal == SIGTSTP && !event.ends_job) {
    // Their process groups have no terminal: the kernel would ignore SIGTSTP for them.
    processes_.signal_workers(SIGSTOP);
    suspended_ = true;
    suspended_at_ = processes_.now();
  } else if (event.signal == kStacksSignal && !event.ends_job) {
    rendezvous_.ask_for_stacks();
    print_stacks();
  } else if (!event.ends_job) {
    if (event.signal != SIGCONT) return processes_.forward(event.signal, told_to_stop());
    resume();
    processes_.signal_workers(SIGCONT);
  } else if (stop_requests_.add(event.origin, processes_.now()) && end_signal_ == 0) {
    end_signal_ = event.signal;
    processes_.end_standby();
    rendezvous_.leave(event.signal);
  }
}

void LocalElasticAgent::resume() {
  if (suspended_ && deadline_) *deadline_ += processes_.now() - suspended_at_;
  if (suspended_) exits_.forgive(processes_.now() - suspended_at_);
  suspended_ = false;
  hangs_.forgive_silence(processes_.now());
}

void LocalElasticAgent::absorb_exits(const std::vector<Event>& events) {
  std::vector<ProcessFailure> batch;
  for (const Event& event : events) {
    if (event.kind == Event::Kind::kWorkerExited) absorb_exit(event, batch);
  }
  order_failures(batch);
  if (told_to_stop() && !batch.empty()) {
    add_simultaneous(failures_, batch);
  } else {
    failures_.insert(failures_.end(), batch.begin(), batch.end());
  }
  // A worker that failed is the cause, not one that exited cleanly before it.
  std::stable_partition(failures_.begin(), failures_.end(), [&](const ProcessFailure& failure) {
    return !is_preemption(plan_.restarts, failure.exit);
  });
}

void LocalElasticAgent::absorb_exit(const Event& event, std::vector<ProcessFailure>& batch) {
  const auto worker = std::find_if(group_.workers.begin(), group_.workers.end(),
                                   [&](const Worker& w) { return w.pid == event.pid; });
  if (worker == group_.workers.end()) return;
  worker->exit = event.exit;
  worker->usage = event.usage;
  if (!event.error_file.path.empty()) worker->error_file = event.error_file;
  worker->lived = processes_.now() - group_.began;
  const bool known = is_hung(*worker);
  worker->state = event.exit.ok()                        ? WorkerState::kSucceeded
                  : known                                ? WorkerState::kFailed
                  : told_to_stop() && !worker->was_dying ? WorkerState::kStopped
                                                         : WorkerState::kFailed;
  worker->stopped_well = event.exit.ok() && told_to_stop() && !worker->was_dying;
  if (worker->state == WorkerState::kSucceeded) exits_.exited(processes_.now());
  record_event(*worker);
  if (asked_for_stacks_.erase(worker->local_rank) > 0) dumping_ = !asked_for_stacks_.empty();
  if (worker->state != WorkerState::kFailed || known) return;
  batch.push_back(failure_of(*worker, processes_));
  if (!event.cause.empty()) batch.back().cause = event.cause;
  if (event.time > 0) batch.back().time = event.time;
}

// Workers that fail at the same moment lost their store; finished workers no longer need it, but
// those of other nodes may, whose own words for its loss name no cause.
void LocalElasticAgent::absorb_store_loss(const Event& event) {
  if (serves_only_others())
    return processes_.note(event.cause + "; workers of other nodes that still use it will fail");
  if (told_to_stop() || (running() == 0 && failures_.empty())) return;
  failures_.insert(failures_.begin(), failure_without_worker(event.exit, event.cause, processes_));
  failures_.front().lived = processes_.now() - group_.began;
}

bool LocalElasticAgent::serves_only_others() const {
  const auto succeeded = [](const Worker& w) { return w.state == WorkerState::kSucceeded; };
  return group_.rendezvous.group_world_size > 1 && !group_.workers.empty() &&
         std::all_of(group_.workers.begin(), group_.workers.end(), succeeded) && !verdict_ &&
         end_signal_ == 0;
}

bool LocalElasticAgent::told_to_stop() const {
  return (phase_ != Phase::kRunning && phase_ != Phase::kLeaving) || end_signal_ != 0 ||
         guardian_gone_;
}

void LocalElasticAgent::record_event(const Worker& worker) const {
  std::string text;
  if (worker.state == WorkerState::kFailed) {
    if (const auto message = read_error_file(worker.error_file)) text = message->text;
  }
  plan_.events.worker(event_name(worker.state), group_, worker, since_start(), text);
}

}  // namespace ddp::launch
