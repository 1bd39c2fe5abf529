#include "launcher/process/worker_processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "launcher/base/clock.h"
#include "launcher/base/errors.h"
#include "launcher/base/messages.h"
#include "launcher/base/signal_names.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/idle_memory.h"
#include "launcher/base/worker.h"
#include "launcher/hang/stalled_console.h"
#include "launcher/process/process_tree.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr auto kSweepPatience = std::chrono::seconds(5);
// Exiting after an inotify watch takes some 10 ms: short jobs go without.
constexpr auto kFirstWatch = std::chrono::milliseconds(200);

// For the thread of the log files. The end of a round may have removed the folder by then.
FileWriter::Write append_stacks_to(const std::string& file) {
  return [file](std::string_view text) {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path(), ignored);
    const Descriptor fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    return fd.get() < 0 ? errno : write_fully(fd.get(), text);
  };
}

// The kernel takes the carriage return for a part of the interpreter's name.
bool ends_first_line_in_cr(const std::string& script) {
  std::ifstream file(script);
  std::string line;
  return std::getline(file, line) && line.starts_with("#!") && line.ends_with('\r');
}

LaunchError exec_error(const WorkerSpec& spec, int error) {
  const char* tip = error == ENOEXEC ? "; a script needs a first line such as #!/bin/sh"
                    : error == ENOENT && ends_first_line_in_cr(spec.command.executable)
                        ? "; it has Windows line endings: convert it, e.g. with dos2unix"
                    : error == ENOENT
                        ? "; its interpreter (first line) or dynamic loader is missing"
                    : error == E2BIG ? "; shorten the arguments or the environment"
                                     : "";
  return LaunchError(
      error == ENOENT ? kExitNotFound : kExitNotExecutable,
      fmt::format("cannot execute '{}': {}{}", spec.command.executable, error_text(error), tip));
}

}  // namespace

WorkerProcesses::WorkerProcesses(const SignalMailbox& signals, int guardian_pipe)
    : signals_(signals),
      signal_fd_(signals.open_fd()),
      guardian_pipe_(guardian_pipe),
      standby_([this](const std::string& line) { pump_.note(line); }, signals.hangup_ignored()),
      leftovers_([this] { return not_the_rounds(); },
                 [this](const std::string& line) { pump_.note(line); }) {
  handlers_.push_back(&standby_);
  handlers_.push_back(&check_);
  handlers_.push_back(&held_signals_);
}

WorkerProcesses::~WorkerProcesses() {
  store_.stop();
  kill_descendants(left_behind_ ? Clock::duration::zero() : kSweepPatience);
}

bool WorkerProcesses::prepare(std::function<void()> create_folders,
                              const std::vector<WorkerSpec>& specs) {
  std::vector<StreamPlan> plans;
  for (const WorkerSpec& spec : specs)
    plans.insert(plans.end(), {spec.streams.out, spec.streams.err});
  pump_.prepare(std::move(create_folders), std::move(plans));
  preparing_ = !pump_.is_prepared();
  return !preparing_;
}

std::vector<pid_t> WorkerProcesses::start(const std::vector<WorkerSpec>& specs) {
  std::vector<pid_t> pids;
  std::vector<PendingSpawn> pending;
  pump_.check_prepared();
  killed_ = false;
  oom_before_ = OomCounts::read();
  expired_.clear();
  heartbeats_.clear();
  error_files_.clear();
  first_heartbeats_.forget_all();
  watch_from_.reset();
  try {
    for (const auto& spec : specs) {
      pending.push_back(start_one(spec));
      running_[pending.back().pid] = spec.local_rank;
      pids.push_back(pending.back().pid);
    }
  } catch (...) {
    for (auto& spawn : pending) finish_spawn(spawn);
    sweep(/*at_end=*/false);
    throw;
  }
  std::optional<LaunchError> first_error;
  for (std::size_t i = 0; i < pending.size(); ++i) {
    const int error = finish_spawn(pending[i]);
    if (error != 0 && !first_error) first_error = exec_error(specs[i], error);
  }
  if (first_error) {
    sweep(/*at_end=*/false);
    throw LaunchError(*first_error);
  }
  held_signals_.round_began(pids);
  release_idle_memory();
  return pids;
}

PendingSpawn WorkerProcesses::start_one(const WorkerSpec& spec) {
  heartbeats_.try_emplace(spec.local_rank, spec.heartbeat_file, now());
  if (const auto file = spec.environment.find(kErrorFile); file != spec.environment.end())
    error_files_[spec.local_rank] = file->second;
  if (!spec.heartbeat_file.empty()) watch_from_ = now() + kFirstWatch;
  const Descriptor in = spec.inherits_stdin ? Descriptor() : open_null_device(O_RDONLY);
  const Descriptor out = pump_.open_stream(spec.streams.out, spec.local_rank, /*is_stderr=*/false);
  const Descriptor err = pump_.open_stream(spec.streams.err, spec.local_rank, /*is_stderr=*/true);
  const WorkerStdio stdio{in.get(), out.get(), err.get()};
  if (const auto pid = standby_.hand_over(spec, stdio)) return {*pid};
  return begin_spawn(spec, stdio, signals_.hangup_ignored());
}

// Checks the deadline after each turn: output may keep descriptors ready forever.
std::vector<Event> WorkerProcesses::wait(std::optional<Clock::time_point> deadline) {
  std::vector<Event> events;
  do {
    turn_began_ = Clock::now();
    take_turn(deadline, events);
  } while (events.empty() && !has_news() && !(deadline && turn_began_ >= *deadline));
  return events;
}

bool WorkerProcesses::has_news() const {
  return std::any_of(handlers_.begin(), handlers_.end(),
                     [](const PollHandler* handler) { return handler->has_news(); });
}

void WorkerProcesses::take_turn(std::optional<Clock::time_point> deadline,
                                std::vector<Event>& events) {
  std::vector<pollfd> fds{{signal_fd_.get(), POLLIN, 0},
                          {guardian_pipe_, POLLIN, 0},
                          {store_.poll_fd(), POLLIN, 0},
                          {first_heartbeats_.fd(), POLLIN, 0},
                          {store_.notes_fd(), POLLIN, 0}};
  pump_.add_poll_fds(fds, /*wants_progress=*/!exits_.empty() || preparing_);
  for (const PollHandler* handler : handlers_) handler->add_poll_fds(fds);
  auto wake = earlier(earlier(deadline, watch_from_), pump_.deadline());
  wake = earlier(wake, leftovers_.deadline());
  if (!exits_.empty()) wake = earlier(wake, exits_.front().until);
  for (const PollHandler* handler : handlers_) wake = earlier(wake, handler->deadline());
  poll_until(fds, wake, "cannot wait for the workers");
  pump_.handle(fds);
  for (PollHandler* handler : handlers_) handler->handle(fds);
  if (fds[1].revents != 0) {
    events.push_back({.kind = Event::Kind::kGuardianGone});
    guardian_pipe_ = -1;  // reported once
  }
  if (fds[3].revents != 0) first_heartbeats_.drain();
  if (fds[3].revents != 0 || (watch_from_ && Clock::now() >= *watch_from_)) {
    watch_heartbeats();
    events.push_back({.kind = Event::Kind::kHeartbeatBegan});
  }
  if (fds[0].revents != 0) take_signals(events);
  if (fds[4].revents != 0) {
    for (const std::string& note : store_.take_notes()) pump_.note(note);
  }
  if (fds[2].revents != 0 && store_.poll_fd() >= 0) note_loss(store_.handle_client(), events);
  report_exits(events);
  if (preparing_ && pump_.is_prepared()) {
    preparing_ = false;
    events.push_back({.kind = Event::Kind::kPrepared});
  }
  if (leftovers_.look()) events.push_back({.kind = Event::Kind::kLeftoversEnded});
}

// The reported write may only have truncated the file before its text is written. Watch first, then
// read, so that the text is seen either way.
void WorkerProcesses::watch_heartbeats() {
  watch_from_.reset();
  for (const auto& [local_rank, heartbeat] : heartbeats_) {
    if (heartbeat.is_mute() && !heartbeat.path().empty()) first_heartbeats_.watch(heartbeat.path());
  }
}

bool WorkerProcesses::flush(LogPump::Patience patience, StopRequests& requests) {
  return pump_.flush(patience, {signal_fd_.get(), guardian_pipe_}, [this, &requests] {
    pollfd launcher{guardian_pipe_, POLLIN, 0};
    std::vector<Event> events;
    requests.nothing_pending();
    take_signals(events);
    const auto asks = [&](const Event& event) {
      return event.ends_job && requests.add(event.origin, Clock::now());
    };
    return std::count_if(events.begin(), events.end(), asks) > 0 || ::poll(&launcher, 1, 0) == 1;
  });
}

void WorkerProcesses::take_signals(std::vector<Event>& events) {
  signalfd_siginfo info{};
  bool child_changed = false;
  while (::read(signal_fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) {
      child_changed = true;
    } else if (signal == SIGWINCH && !signals_.ends_job(signal)) {
      resize_terminals();
    } else {
      const auto sender = static_cast<pid_t>(info.ssi_pid);
      events.push_back({.kind = Event::Kind::kSignal,
                        .signal = signal,
                        .ends_job = signals_.ends_job(signal),
                        .origin = origin_of(signal, info.ssi_code, sender, info.ssi_int)});
    }
  }
  if (child_changed) reap(events);
}

void WorkerProcesses::stop_workers(int signal, std::chrono::milliseconds grace) {
  // A worker under a debugger would not receive the signal.
  stack_dumper_.cancel();
  killed_ = killed_ || signal == SIGKILL;
  for (const auto& [pid, local_rank] : running_) {
    const auto saving = signal_worker_process(pid, signal);
    if (grace.count() > 0) leftovers_.asked_to_stop(pid, saving, grace);
  }
}

void WorkerProcesses::forward(int signal, bool next_too) {
  stack_dumper_.cancel();
  std::vector<pid_t> workers;
  for (const auto& [pid, local_rank] : running_) workers.push_back(pid);
  if (next_too) held_signals_.keep_for_next_round(signal);
  if (const int waiting = held_signals_.forward(signal, workers); waiting > 0)
    note(fmt::format("{} is held back until {} worker{} it", signal_name(signal), waiting,
                     waiting == 1 ? " handles" : "s handle"));
}

// The kernel notifies only the terminal's own session.
void WorkerProcesses::resize_terminals() {
  pump_.resize_terminals();
  for (const auto& [pid, local_rank] : running_) ::kill(-pid, SIGWINCH);
}

pid_t WorkerProcesses::pid_of(int local_rank) const {
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [&](const auto& entry) { return entry.second == local_rank; });
  return found == running_.end() ? 0 : found->first;
}

void WorkerProcesses::signal_worker(int local_rank, int signal) {
  const pid_t pid = pid_of(local_rank);
  if (pid != 0) signal_worker_process(pid, signal);
}

void WorkerProcesses::end_expired(const ExpiredTimer& timer) {
  const auto worker = running_.find(::getsid(timer.pid));
  if (worker == running_.end()) return;  // anyone may write to the pipe
  expired_[timer.pid] = fmt::format("timer '{}' expired", timer.scope);
  pump_.note(fmt::format("local rank {}, pid {}: {}; {}", worker->second, timer.pid,
                         expired_[timer.pid], signal_name(timer.signal)));
  ::kill(timer.pid, timer.signal);
}

LifeSign WorkerProcesses::life_sign(int local_rank) {
  LifeSign sign = heartbeats_.at(local_rank).look(now());
  sign.at = std::max(sign.at, pump_.last_output(local_rank));
  return sign;
}

Clock::time_point WorkerProcesses::held_up_until() const {
  const bool now_held =
      console_is_stalled() && std::any_of(running_.begin(), running_.end(), [](const auto& entry) {
        return waits_for_console(entry.first);
      });
  return now_held ? now() : pump_.held_up_until();
}

KernelState WorkerProcesses::state_of(int local_rank) const {
  const pid_t pid = pid_of(local_rank);
  return pid == 0 ? KernelState{} : kernel_state(pid);
}

CpuTimes WorkerProcesses::cpu_times_of(int local_rank) const {
  const pid_t pid = pid_of(local_rank);
  return pid == 0 ? CpuTimes{} : cpu_times(pid);
}

bool WorkerProcesses::dump_stacks(const std::vector<StackDump>& wanted) {
  const char* path = std::getenv("PATH");
  std::vector<StackDumper::Target> targets;
  for (const StackDump& dump : wanted) {
    const pid_t pid = pid_of(dump.local_rank);
    if (pid == 0) continue;
    const std::string threads = thread_table(pid);
    if (!dump.file.empty()) pump_.open_file(dump.file, append_stacks_to(dump.file))(threads);
    if (dump.by_debugger) targets.push_back({dump.local_rank, pid, dump.file, threads});
  }
  return stack_dumper_.begin(targets, path ? path : "");
}

TakenStacks WorkerProcesses::take_stacks(int local_rank, const std::string& file) {
  const char* path = std::getenv("PATH");
  TakenStacks stacks;
  stacks.text = stack_dumper_.take_text(local_rank, stacks.complete);
  stacks.lacks_python = lacks_python_frames(pid_of(local_rank), path ? path : "", stacks.text);
  if (!file.empty()) pump_.open_file(file, append_stacks_to(file))(stacks.text);
  return stacks;
}

std::string WorkerProcesses::oom_kills() const {
  return oom_kills_between(oom_before_, OomCounts::read());
}

double WorkerProcesses::unix_time() const { return unix_seconds(); }

// Children that outlive a round.
std::vector<pid_t> WorkerProcesses::not_the_rounds() const {
  auto pids = standby_.pids();
  if (store_.pid() != 0) pids.push_back(store_.pid());
  return pids;
}

std::vector<std::string> WorkerProcesses::sweep(bool at_end) {
  // The agent may have waited already for SIGKILL to take effect.
  const bool briefly = !at_end || (killed_ && !running_.empty());
  for (const auto& [pid, local_rank] : running_) held_signals_.worker_ended(pid);
  running_.clear();
  exits_.clear();
  leftovers_.forget();
  stack_dumper_.forget_all();
  check_.forget();
  auto survivors = kill_descendants(briefly ? Clock::duration(kShortPatience) : kSweepPatience,
                                    not_the_rounds());
  left_behind_ = !survivors.empty();
  store_.take_exit();  // the sweep consumed SIGCHLD; the round is over, so nothing is lost
  standby_.take_exits();
  pump_.finish_round();
  return survivors;
}

}  // namespace ddp::launch
