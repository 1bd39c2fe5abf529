#include "launcher/process/worker_signals.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>

#include "launcher/base/system/proc_files.h"

namespace ddp::launch {
namespace {

// The kernel reports no change of a process's handlers.
constexpr auto kLookAgain = std::chrono::milliseconds(100);

bool contains(unsigned long long mask, int signal) { return (mask >> (signal - 1) & 1) != 0; }

// bash and dash catch SIGINT while they wait for a program, and, with a trap on EXIT, everything.
bool is_shell(pid_t pid) {
  std::array<char, 4096> path{};
  const auto size = ::readlink((process_folder(pid) + "/exe").c_str(), path.data(), path.size());
  std::string_view name(path.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  name.remove_prefix(name.rfind('/') + 1);
  return name == "busybox" || (name.size() > 1 && name.substr(name.size() - 2) == "sh");
}

// While a worker is in sigwait, its mask of blocked signals lacks those that it waits for.
bool waits_for(pid_t worker, int signal) {
  std::istringstream call(first_line(process_folder(worker) + "/syscall"));
  long number = -1;
  std::uintptr_t set = 0;
  if (!(call >> number >> std::hex >> set) || number != SYS_rt_sigtimedwait) return false;
  std::uint64_t wanted = 0;
  const iovec here{&wanted, sizeof wanted};
  const iovec there{reinterpret_cast<void*>(set), sizeof wanted};
  return ::process_vm_readv(worker, &here, 1, &there, 1, 0) == sizeof wanted &&
         contains(wanted, signal);
}

// Unknown without a /proc of this PID namespace: then as before, whatever it does.
bool survives(pid_t worker, int signal) {
  const auto masks = read_signal_masks(worker);
  return !masks || contains(masks->caught | masks->ignored | masks->blocked, signal) ||
         waits_for(worker, signal);
}

}  // namespace

void signal_worker_process(pid_t worker, int signal) {
  const auto masks = read_signal_masks(worker);
  // SIGCONT resumes all that SIGSTOP has stopped.
  const bool alone =
      signal != SIGCONT && masks && contains(masks->caught, signal) && !is_shell(worker);
  // The worker may have changed its group.
  if (alone || ::kill(-worker, signal) != 0) ::kill(worker, signal);
}

int HeldSignals::forward(int signal, const std::vector<pid_t>& workers) {
  if (workers.empty()) keep_for_next_round(signal);
  for (const pid_t worker : workers) held_.insert({worker, signal});
  deliver();
  int waiting = 0;
  for (const pid_t worker : workers) waiting += static_cast<int>(held_.count({worker, signal}));
  return waiting;
}

void HeldSignals::worker_ended(pid_t worker) {
  std::set<std::pair<pid_t, int>> held;
  for (const auto& [pid, signal] : held_) held.insert({pid == worker ? kNextRound : pid, signal});
  held_ = std::move(held);
}

void HeldSignals::round_began(const std::vector<pid_t>& workers) {
  std::set<std::pair<pid_t, int>> held;
  for (const auto& [pid, signal] : held_) {
    for (const pid_t worker : workers) held.insert({worker, signal});
  }
  held_ = std::move(held);
  look_at_ = Clock::now();
}

void HeldSignals::deliver() {
  std::erase_if(held_, [](const auto& held) {
    const auto [worker, signal] = held;
    const bool now = worker != kNextRound && survives(worker, signal);
    if (now) signal_worker_process(worker, signal);
    return now;
  });
  look_at_ = Clock::now() + kLookAgain;
}

void HeldSignals::handle(const std::vector<pollfd>&) {
  if (const auto due = deadline(); due && Clock::now() >= *due) deliver();
}

std::optional<Clock::time_point> HeldSignals::deadline() const {
  // Ordered: kNextRound comes first.
  if (held_.empty() || held_.rbegin()->first == kNextRound) return std::nullopt;
  return look_at_;
}

}  // namespace ddp::launch
