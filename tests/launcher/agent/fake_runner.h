// A scripted operating system: what happens next is a list, what the agent does is a list, too, and
// time only passes when the agent waits for a deadline.
#pragma once

#include <deque>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>

#include "launcher/base/errors.h"
#include "launcher/hang/stack_dump.h"
#include "launcher/process/process_runner.h"
#include "launcher/process/worker_spec.h"

namespace ddp::launch {

class FakeRunner : public ProcessRunner {
 public:
  std::deque<std::function<std::vector<Event>(FakeRunner&)>> script;
  std::vector<std::string> calls;
  std::vector<std::vector<WorkerSpec>> rounds;
  std::vector<WorkerSpec> standby;
  std::vector<std::string> survivors;
  std::vector<std::string> notes;
  std::map<int, LifeSign> signs;  // by local rank
  std::set<int> held;             // local ranks that are stopped
  std::set<int> asleep;           // local ranks in uninterruptible sleep
  long switches = 0;              // of every worker, see KernelState
  std::set<int> dying;            // local ranks that have begun to end
  std::set<std::size_t> broken;   // rounds that cannot be started
  bool has_debugger = false;
  int cut = -1;          // local rank whose debugger does not end
  bool lingers = false;  // processes that the workers left
  std::string oom;       // what the OOM killer did
  Clock::time_point held_up;
  Clock::duration stopped{};  // of this turn, the time in which the agent was stopped
  ThreadTimes cpu_times;      // of every worker

  pid_t pid(int local_rank) const { return static_cast<pid_t>(100 * rounds.size()) + local_rank; }

  bool prepare(std::function<void()> create_folders, const std::vector<WorkerSpec>&) override {
    create_folders();
    return true;
  }
  std::vector<pid_t> start(const std::vector<WorkerSpec>& specs) override {
    rounds.push_back(specs);
    if (broken.count(rounds.size() - 1) > 0) throw LaunchError(127, "cannot execute 'x'");
    calls.push_back("start " + std::to_string(specs.size()));
    std::vector<pid_t> pids;
    for (const auto& spec : specs) pids.push_back(pid(spec.local_rank));
    return pids;
  }
  void keep_standby(const std::vector<WorkerSpec>& specs) override {
    standby = specs;
    calls.push_back("standby " + std::to_string(specs.size()));
  }
  void end_standby() override {
    if (!standby.empty()) calls.emplace_back("end standby");
    standby.clear();
  }
  void start_check(const WorkerSpec& spec) override {
    calls.push_back("check " + spec.command.executable);
  }
  std::vector<Event> wait(std::optional<Clock::time_point> deadline) override {
    stopped = {};
    if (script.empty()) throw std::logic_error("the agent waits, but the script is over");
    const auto step = script.front();
    script.pop_front();
    auto events = step(*this);
    if (events.empty() && !deadline) throw std::logic_error("the agent would wait for ever");
    if (events.empty()) now_ = *deadline;
    return events;
  }
  void signal_workers(int signal) override { calls.push_back("signal " + std::to_string(signal)); }
  void stop_workers(int signal, std::chrono::milliseconds) override { signal_workers(signal); }
  void forward(int signal, bool next_too) override {
    calls.push_back("forward " + std::to_string(signal) + (next_too ? ", next too" : ""));
  }
  void serve_store(int source) override {
    serving_ = source >= 0;
    if (serving_) calls.push_back("serve store on " + std::to_string(source));
  }
  void stop_store() override {
    if (serving_) calls.emplace_back("stop store");
    serving_ = false;
  }
  void signal_worker(int local_rank, int signal) override {
    calls.push_back("signal " + std::to_string(signal) + " to " + std::to_string(local_rank));
  }
  LifeSign life_sign(int local_rank) override { return signs[local_rank]; }
  std::optional<Clock::time_point> first_output(int) const override { return std::nullopt; }
  Clock::time_point held_up_until() const override { return held_up; }
  KernelState state_of(int local_rank) const override {
    const char letter = held.count(local_rank) > 0 ? 'T' : asleep.count(local_rank) > 0 ? 'D' : 'S';
    return {letter, std::string("state ") + letter + " of " + std::to_string(local_rank),
            dying.count(local_rank) > 0, switches};
  }
  CpuTimes cpu_times_of(int local_rank) const override { return {{local_rank, cpu_times}}; }
  bool dump_stacks(const std::vector<StackDump>& wanted) override {
    for (const StackDump& dump : wanted)
      calls.push_back((dump.by_debugger ? "stacks of " : "threads of ") +
                      std::to_string(dump.local_rank));
    return has_debugger && !wanted.empty() && wanted.front().by_debugger;
  }
  TakenStacks take_stacks(int local_rank, const std::string&) override {
    return {"stacks of " + std::to_string(local_rank) + "\n", local_rank != cut, false};
  }
  std::vector<std::string> sweep(bool) override {
    calls.emplace_back("sweep");
    return survivors;
  }
  bool lingering() const override { return lingers; }
  std::string oom_kills() const override { return oom; }
  std::string last_stderr(int local_rank) const override {
    return "stderr of " + std::to_string(local_rank) + "\n";
  }
  void note(const std::string& line) override { notes.push_back(line); }
  Clock::time_point now() const override { return now_; }
  Clock::time_point turn_began() const override { return now_ - stopped; }
  double unix_time() const override {
    return 1'700'000'000 + std::chrono::duration<double>(now_.time_since_epoch()).count();
  }
  void pass(Clock::duration time) { now_ += time; }

  FakeRunner& then(std::function<std::vector<Event>(FakeRunner&)> step) {
    script.push_back(std::move(step));
    return *this;
  }
  FakeRunner& gets(const Event& event, Clock::duration after = {}) {
    return then([=](FakeRunner& self) {
      self.pass(after);
      return std::vector{event};
    });
  }
  FakeRunner& exits(int local_rank, ExitStatus exit) {
    return then([=](FakeRunner& self) { return std::vector{exited(self.pid(local_rank), exit)}; });
  }
  FakeRunner& signalled(int signal, bool ends_job, Clock::duration after = {}) {
    return gets({.kind = Event::Kind::kSignal, .signal = signal, .ends_job = ends_job}, after);
  }
  /// Nothing happens until the agent's deadline, but for what `change` does.
  FakeRunner& time_passes(std::function<void(FakeRunner&)> change = [](FakeRunner&) {}) {
    return then([=](FakeRunner& self) {
      change(self);
      return std::vector<Event>{};
    });
  }

  /// What others do from now on is read in the next turn, ten minutes later.
  static std::vector<Event> stop_after_reading(FakeRunner& self) {
    self.pass(self.stopped = std::chrono::minutes(10));
    return {{.kind = Event::Kind::kStacksDumped}};
  }
  static Event exited(pid_t pid, ExitStatus exit) {
    return {.kind = Event::Kind::kWorkerExited, .pid = pid, .exit = exit};
  }

 private:
  Clock::time_point now_{};
  bool serving_ = false;
};

}  // namespace ddp::launch
