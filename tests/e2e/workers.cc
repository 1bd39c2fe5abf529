#include "tests/e2e/workers.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>

#include "tests/e2e/saved_state.h"

namespace ddp::test {
namespace {

namespace fs = std::filesystem;
using SteadyClock = std::chrono::steady_clock;

bool is_number(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool has_variable(const std::string& environment, const std::string& assignment) {
  return ('\0' + environment).find('\0' + assignment + '\0') != std::string::npos;
}

// Those in the workspace whose first environment is `wanted`.
std::vector<pid_t> processes(const Workspace& place,
                             const std::function<bool(const std::string&)>& wanted) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (!is_number(pid)) continue;
    const std::string environment = read_bytes("/proc/" + pid + "/environ");
    if (has_variable(environment, "DDP_E2E_FOLDER=" + place.path()) && wanted(environment))
      found.push_back(std::stoi(pid));
  }
  return found;
}

unsigned seed_of_this_run() {
  const char* given = std::getenv("DDP_E2E_SEED");
  return given != nullptr ? static_cast<unsigned>(std::stoul(given)) : std::random_device{}();
}

}  // namespace

pid_t worker_pid(const Workspace& place, int rank) {
  const auto found = processes(place, [rank](const std::string& environment) {
    return has_variable(environment, "RANK=" + std::to_string(rank));
  });
  return found.empty() ? 0 : found.front();
}

std::vector<pid_t> spare_pids(const Workspace& place) {
  return processes(place, [](const std::string& environment) {
    return environment.find(std::string(1, '\0') + "DDP_SPARE_FD=") != std::string::npos;
  });
}

FolderWatch::FolderWatch(const std::string& folder)
    : fd_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  if (fd_ < 0 ||
      ::inotify_add_watch(fd_, folder.c_str(), IN_CREATE | IN_MODIFY | IN_MOVED_TO) < 0) {
    throw std::runtime_error("cannot watch " + folder + ": " + std::strerror(errno));
  }
}

FolderWatch::~FolderWatch() { ::close(fd_); }

void FolderWatch::forget_past_events() {
  char buffer[8192];
  while (::read(fd_, buffer, sizeof buffer) > 0) {
  }
}

std::optional<FileEvent> FolderWatch::wait_for(const std::function<bool(const FileEvent&)>& wanted,
                                               ChildProgram::Time bound) {
  const auto deadline = SteadyClock::now() + bound;
  alignas(inotify_event) char buffer[8192];
  for (;;) {
    const auto left = std::chrono::ceil<ChildProgram::Time>(deadline - SteadyClock::now());
    pollfd readable{fd_, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&readable, 1, static_cast<int>(left.count())) <= 0)
      return std::nullopt;
    const ssize_t got = ::read(fd_, buffer, sizeof buffer);
    for (ssize_t at = 0; at < got;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      FileEvent seen{event->mask, event->len > 0 ? event->name : ""};
      if (wanted(seen)) return seen;
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
  }
}

Dice::Dice() {
  const unsigned seed = seed_of_this_run();
  std::cout << "DDP_E2E_SEED=" << seed << " repeats this choice of moments" << std::endl;
  engine_.seed(seed);
}

bool is_stopped(pid_t pid) {
  std::string stat;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), stat);
  return stat.find(") T ") != std::string::npos;
}

void wait_until_stopped(pid_t pid) {
  wait_until([pid] { return is_stopped(pid); }, kPatience);
}

}  // namespace ddp::test
