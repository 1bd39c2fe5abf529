#include "launcher/process/worker_signals.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>

#include "launcher/base/system/proc_files.h"
#include "launcher/process/process_tree.h"

namespace ddp::launch {
namespace {

// The kernel reports no change of a process's handlers, and to look at all below a shell takes
// time.
constexpr std::chrono::milliseconds kLongestPause{1'600};

bool contains(unsigned long long mask, int signal) { return (mask >> (signal - 1) & 1) != 0; }

// bash and dash catch SIGINT while they wait for a program; bash with a trap on EXIT, everything.
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

bool catches(pid_t process, int signal) {
  const auto masks = read_signal_masks(process);
  return masks && !is_shell(process) &&
         (contains(masks->caught, signal) || waits_for(process, signal));
}

// The processes of a worker's session but its first one, parents first: the topmost that catch a
// signal, and those above them.
struct Below {
  std::vector<pid_t> catching;
  std::vector<pid_t> others;
};

void look_below(pid_t parent, pid_t session, int signal, Below& found) {
  for (const pid_t child : children_of(parent)) {
    if (child == session || ::getsid(child) != session) continue;
    if (catches(child, signal)) {
      found.catching.push_back(child);
    } else {
      found.others.push_back(child);
      look_below(child, session, signal, found);
    }
  }
}

Below find_below(pid_t worker, int signal) {
  Below found;
  look_below(worker, worker, signal, found);
  look_below(::getpid(), worker, signal, found);  // orphans, such as of (prog &)
  return found;
}

// Those that have ended meanwhile may have left their numbers to others.
void signal_all(const std::vector<pid_t>& processes, pid_t session, int signal) {
  for (const pid_t pid : processes) {
    if (::getsid(pid) == session) ::kill(pid, signal);
  }
}

// Whether a shell has a trap for this signal: bash catches even SIGVTALRM for a trap on EXIT.
bool is_trapped(const SignalMasks& masks, int signal) {
  return contains(masks.caught, signal) && !contains(masks.caught, SIGVTALRM);
}

// Forwards a signal unless it would kill what it reaches; returns whether it has.
bool forward_to(pid_t worker, int signal) {
  const auto masks = read_signal_masks(worker);
  if (masks && is_shell(worker)) {
    const Below below = find_below(worker, signal);
    signal_all(below.catching, worker, signal);
    if (!below.catching.empty()) return true;
    if (contains(masks->caught, signal))
      return is_trapped(*masks, signal) && ::kill(worker, signal) == 0;
  }
  // Unknown without a /proc of this PID namespace: then at once, whatever it does.
  const bool survives = !masks || contains(masks->caught | masks->ignored | masks->blocked, signal);
  if (!survives && !waits_for(worker, signal)) return false;
  signal_worker_process(worker, signal);
  return true;
}

}  // namespace

std::vector<pid_t> signal_worker_process(pid_t worker, int signal) {
  const auto masks = read_signal_masks(worker);
  // SIGCONT resumes all that SIGSTOP has stopped.
  const bool by_handler = masks && signal != SIGCONT && signal != SIGSTOP && signal != SIGKILL;
  const bool shell = by_handler && is_shell(worker);
  const bool alone = by_handler && !shell && contains(masks->caught, signal);
  const Below below = by_handler && !alone ? find_below(worker, signal) : Below{};
  // The worker may have changed its group.
  if (alone || !below.catching.empty() || ::kill(-worker, signal) != 0) ::kill(worker, signal);
  if (!below.catching.empty()) signal_all(below.others, worker, signal);
  signal_all(below.catching, worker, signal);
  return shell ? below.catching : std::vector<pid_t>{};
}

int HeldSignals::forward(int signal, const std::vector<pid_t>& workers) {
  if (workers.empty()) keep_for_next_round(signal);
  for (const pid_t worker : workers) held_.insert({worker, signal});
  pause_ = kFirstPause;
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
  pause_ = kFirstPause;
  look_at_ = Clock::now();
}

void HeldSignals::deliver() {
  std::erase_if(held_, [](const auto& held) {
    const auto [worker, signal] = held;
    return worker != kNextRound && forward_to(worker, signal);
  });
  look_at_ = Clock::now() + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
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
