#include "launcher/process/left_behind.h"

#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>

#include "launcher/base/system/proc_files.h"
#include "launcher/base/text.h"
#include "launcher/process/process_tree.h"

namespace ddp::launch {
namespace {

constexpr auto kGroup = std::chrono::seconds(1);
// torch_shm_manager, which has left the group, removes what it manages 2 s after its last client.
constexpr auto kOthers = std::chrono::milliseconds(2500);
constexpr auto kAfterSigterm = std::chrono::seconds(1);
constexpr auto kAfterSigkill = std::chrono::seconds(5);

bool children_are_listed() {
  const std::string self = std::to_string(::getpid());
  return ::access((process_folder(::getpid()) + "/task/" + self + "/children").c_str(), R_OK) == 0;
}

}  // namespace

void LeftBehind::asked_to_stop(pid_t worker, const std::vector<pid_t>& processes,
                               std::chrono::milliseconds grace) {
  for (const pid_t pid : processes) asked_[pid] = worker;
  grace_ = grace;
  until_ = Clock::now() + grace;
}

void LeftBehind::worker_ended(pid_t worker, bool last) {
  if (!is_empty(worker)) groups_[worker] = {Clock::now() + kGroup};
  // Without the kernel's list, to find children takes long: the sweep does it once.
  if (last && children_are_listed() && !is_empty(kAll)) groups_[kAll] = {Clock::now() + kOthers};
}

// As long as it has a member, the number of a group is not used again.
bool LeftBehind::is_empty(pid_t group) const {
  return group == kAll ? children_except(spared_()).empty() : !has_children_in_group(group);
}

// Each once, as this is repeated: a process that ends leaves its children to this one.
void LeftBehind::signal_others(int signal) {
  for (const pid_t child : children_except(spared_())) {
    if (groups_.count(::getpgid(child)) == 0 && signaled_.insert({child, signal}).second)
      ::kill(child, signal);
  }
}

// A worker is the leader of its session.
void LeftBehind::look_at_asked() {
  std::erase_if(asked_, [](const auto& asked) {
    return ::getsid(asked.first) != asked.second ||
           read_stat(process_folder(asked.first)).state == 'Z';
  });
  if (asked_.empty() || Clock::now() < until_) return;
  // The agent reports workers that have not ended.
  const auto late = std::count_if(asked_.begin(), asked_.end(), [this](const auto& asked) {
    return lingers() || groups_.count(asked.second) > 0;
  });
  if (late > 0)
    note_(fmt::format("{} of ended workers did not stop within {}; killed",
                      plural(late, "process", "es"), seconds_text(grace_)));
  for (const auto& [pid, worker] : asked_) ::kill(pid, SIGKILL);
  asked_.clear();
}

bool LeftBehind::is_held(pid_t group) const {
  return std::any_of(asked_.begin(), asked_.end(),
                     [group](const auto& asked) { return group == kAll || asked.second == group; });
}

bool LeftBehind::look() {
  const bool lingered = lingers();
  if (!asked_.empty()) look_at_asked();
  for (auto entry = groups_.begin(); entry != groups_.end();) {
    auto& [group, next] = *entry;
    bool over = is_empty(group);
    if (is_held(group)) {
      next = {until_, SIGTERM, true};
    } else if (next.held) {
      next = {Clock::now() + (group == kAll ? kOthers : kGroup)};
    } else if (!over && Clock::now() >= next.due) {
      over = next.signal == kNone;
      if (group == kAll)
        signal_others(next.signal);
      else
        ::kill(-group, next.signal);
      next = next.signal == SIGTERM ? Next{Clock::now() + kAfterSigterm, SIGKILL}
                                    : Next{Clock::now() + kAfterSigkill, kNone};
    } else if (!over && group == kAll && next.signal != SIGTERM) {
      signal_others(next.signal == SIGKILL ? SIGTERM : SIGKILL);  // those that have come since
    }
    entry = over ? groups_.erase(entry) : std::next(entry);
  }
  return lingered && !lingers();
}

void LeftBehind::forget() {
  groups_.clear();
  signaled_.clear();
  asked_.clear();
}

std::optional<Clock::time_point> LeftBehind::deadline() const {
  std::optional<Clock::time_point> soonest;
  for (const auto& [group, next] : groups_) soonest = earlier(soonest, next.due);
  return soonest;
}

}  // namespace ddp::launch
