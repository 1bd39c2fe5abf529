#include "launcher/process/left_behind.h"

#include <unistd.h>

#include <chrono>
#include <iterator>
#include <string>

#include "launcher/base/system/proc_files.h"
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

void LeftBehind::worker_ended(pid_t worker, bool last) {
  if (!is_empty(worker)) groups_[worker] = {Clock::now() + kGroup};
  // Without the kernel's list, to find children takes long: the sweep does it once.
  if (last && children_are_listed() && !is_empty(kAll)) groups_[kAll] = {Clock::now() + kOthers};
}

// As long as it has a member, the number of a group is not used again.
bool LeftBehind::is_empty(pid_t group) const {
  return group == kAll ? children_except(spared_()).empty() : !has_children_in_group(group);
}

void LeftBehind::signal(pid_t group, int signal) const {
  if (group != kAll) {
    ::kill(-group, signal);
    return;
  }
  for (const pid_t child : children_except(spared_())) {
    if (groups_.count(::getpgid(child)) == 0) ::kill(child, signal);
  }
}

bool LeftBehind::look() {
  const bool lingered = lingers();
  for (auto entry = groups_.begin(); entry != groups_.end();) {
    auto& [group, next] = *entry;
    bool over = is_empty(group);
    if (!over && Clock::now() >= next.due) {
      over = next.signal == kNone;
      if (!over) signal(group, next.signal);
      next = next.signal == SIGTERM ? Next{Clock::now() + kAfterSigterm, SIGKILL}
                                    : Next{Clock::now() + kAfterSigkill, kNone};
    }
    entry = over ? groups_.erase(entry) : std::next(entry);
  }
  return lingered && !lingers();
}

std::optional<Clock::time_point> LeftBehind::deadline() const {
  std::optional<Clock::time_point> soonest;
  for (const auto& [group, next] : groups_) soonest = earlier(soonest, next.due);
  return soonest;
}

}  // namespace ddp::launch
