// What a user learns of a job while it runs: its status, and the stacks of its workers.
#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "launcher/agent/agent.h"
#include "launcher/agent/worker_reports.h"
#include "launcher/base/text.h"

namespace ddp::launch {
namespace {

// gdb may need half a minute for LibTorch's symbols, and runs on two workers at a time.
constexpr std::chrono::seconds kStacksPatience{60};
// The same request may come several times: scancel --signal reaches all nodes, and each asks the
// others.
constexpr std::chrono::seconds kSameRequest{2};
// For replies of the other nodes' agents, which need milliseconds.
constexpr std::chrono::seconds kStatusPatience{3};

std::string collective_of(const Progress& progress) {
  if (!progress.waiting.empty()) return "waits for its peers in " + printable(progress.waiting);
  return progress.collective.empty() ? "its heartbeat names no collective"
                                     : "last collective: " + printable(progress.collective);
}

}  // namespace

JobStatus LocalElasticAgent::status() const {
  const auto seconds = [](Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  JobStatus status{
      .run_id = plan_.job.run_id,
      .host = plan_.host,
      .pid = plan_.launcher,
      .phase = phase_ == Phase::kReported && processes_.lingering() ? Phase::kLingering : phase_,
      .node = group_.rendezvous.group_rank,
      .nodes = group_.rendezvous.group_world_size,
      .round = group_.restart_count,
      .restarts = restarts_,
      .max_restarts = plan_.job.max_restarts,
      .seconds = seconds(since_start()),
      .round_seconds = ever_started_ ? seconds(processes_.now() - group_.began) : 0.0};
  status.workers = worker_statuses(group_, processes_);
  if (phase_ == Phase::kRunning) status.straggler = rendezvous_.straggler();
  return status;
}

void LocalElasticAgent::show_status(const Show& show) {
  status_readers_.push_back(show);
  if (status_due_) return;
  statuses_.clear();
  status_due_ = processes_.now() + kStatusPatience;
  if (group_.workers.empty() || group_.rendezvous.group_world_size == 1) return end_status();
  rendezvous_.ask_for_status();
}

void LocalElasticAgent::end_status() {
  if (!status_due_) return;
  const bool late = processes_.now() >= *std::exchange(status_due_, std::nullopt);
  statuses_[group_.rendezvous.group_rank] = status_table(status());
  std::string text;
  for (const auto& [node, table] : statuses_) text += table;
  std::vector<int> silent;
  for (int node = 0; node < group_.rendezvous.group_world_size && !group_.workers.empty(); ++node) {
    if (statuses_.count(node) == 0) silent.push_back(node);
  }
  if (!silent.empty()) {
    text += late ? fmt::format("no reply within {} from {}: between rounds, suspended or cut off\n",
                               seconds_text(kStatusPatience), numbered("node", silent))
                 : fmt::format("no reply from {}: the round has ended\n", numbered("node", silent));
  }
  for (const Show& show : std::exchange(status_readers_, {})) show(text, silent.empty());
}

void LocalElasticAgent::show_stacks(const Show& show) {
  rendezvous_.ask_for_stacks();
  begin_stacks(show);
}

void LocalElasticAgent::print_stacks() {
  const auto now = processes_.now();
  if (stacks_printed_ && now - *stacks_printed_ < kSameRequest) return;
  stacks_printed_ = now;
  begin_stacks([this](const std::string& text, bool) { processes_.note(text); });
}

void LocalElasticAgent::begin_stacks(const Show& show) {
  stack_readers_.push_back(show);
  if (stacks_due_) return;
  stacks_due_ = processes_.now() + kStacksPatience;
  std::vector<StackDump> wanted;
  for (const Worker& worker : group_.workers) {
    if (worker.state == WorkerState::kRunning) wanted.push_back({worker.local_rank, ""});
  }
  // The debuggers of a hang come first.
  if (phase_ == Phase::kDumping || wanted.empty()) return end_stacks();
  if (!processes_.dump_stacks(wanted))
    end_stacks("; only states of threads: no py-spy, gdb or eu-stack is on ddp-run's PATH");
}

void LocalElasticAgent::end_stacks(const char* remark) {
  if (!stacks_due_) return;
  stacks_due_.reset();
  std::string text = fmt::format("stacks of job {} on {}{}", plan_.job.run_id, plan_.host, remark);
  if (running() == 0 || phase_ == Phase::kDumping)
    text += fmt::format(": none, as this node is {}", name_of(phase_));
  std::vector<int> cut;
  bool lacks_python = false;
  for (const Worker& worker : group_.workers) {
    if (worker.state != WorkerState::kRunning) continue;
    const TakenStacks stacks = stacks_of(worker);
    text += stacks.text;
    lacks_python = lacks_python || (stacks.complete && stacks.lacks_python);
    if (!stacks.complete) cut.push_back(worker.rank);
  }
  if (lacks_python) {
    text +=
        "\nno Python frames: they need py-spy on the PATH of the job's ddp-run (pip install "
        "py-spy)";
  }
  if (!cut.empty()) {
    text += fmt::format(
        "\nincomplete after {}: the stacks of {}; ask again, or attach gdb or "
        "py-spy to a pid above",
        seconds_text(kStacksPatience), numbered("rank", cut));
  }
  // A debugger has stopped the workers meanwhile.
  hangs_.forgive_silence(processes_.now());
  for (const Show& show : std::exchange(stack_readers_, {})) show(text, cut.empty());
}

// The file would keep a private folder, of which the user has not been told.
TakenStacks LocalElasticAgent::stacks_of(const Worker& worker) {
  const LifeSign sign = processes_.life_sign(worker.local_rank);
  const std::string file = plan_.folder.is_private()
                               ? ""
                               : plan_.folder.stacks_file(group_.restart_count, worker.local_rank);
  TakenStacks stacks = processes_.take_stacks(worker.local_rank, file);
  stacks.text = fmt::format(
      "\n==== rank {} (local rank {}, pid {}): {}; last sign of life {:.1f} s ago{}\n{}",
      worker.rank, worker.local_rank, worker.pid, collective_of(sign.progress),
      std::chrono::duration<double>(processes_.now() - sign.at).count(),
      sign.text.empty() ? "" : ": " + printable(sign.text), stacks.text);
  return stacks;
}

}  // namespace ddp::launch
