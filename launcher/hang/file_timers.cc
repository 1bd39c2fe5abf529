#include "launcher/hang/file_timers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>

#include "launcher/base/clock.h"
#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

using nlohmann::json;

// One per process and scope: more are a program's mistake, and must not fill the memory.
constexpr std::size_t kMostTimers = 10'000;

bool is_pipe(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode);
}

}  // namespace

std::string timer_file(const Environment& environment, const std::vector<std::string>& folders) {
  if (value_of(environment, kEnableFileTimer) != "1") return "";
  std::string chosen = value_of(environment, kTimerFile);
  const bool around =
      !value_of(environment, kRunId).empty();  // a job around this one reads that pipe
  if (!chosen.empty() && !around) return chosen;
  for (const auto& folder : folders) {
    if (!folder.empty()) return folder + "/timers";
  }
  throw LaunchError(kExitUsage,
                    fmt::format("{}=1: no directory for the timer pipe; give a path in {}",
                                kEnableFileTimer, kTimerFile));
}

FileTimers::FileTimers(std::string path, std::function<void(const ExpiredTimer&)> expired)
    : path_(std::move(path)), expired_(std::move(expired)) {
  if (is_pipe(path_)) ::unlink(path_.c_str());
  // Opened for writing as well, so that a closing client causes no end of file.
  if (::mkfifo(path_.c_str(), 0600) == 0)
    pipe_ = Descriptor(::open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (pipe_.get() < 0) {
    throw LaunchError(kExitUsage, fmt::format("{}={}: {}; choose a writable path", kTimerFile,
                                              path_, error_text(errno)));
  }
  clock_ = Descriptor(::timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC));
}

FileTimers::~FileTimers() { ::unlink(path_.c_str()); }

void FileTimers::add_poll_fds(std::vector<pollfd>& fds) const {
  fds.push_back({pipe_.get(), POLLIN, 0});
  fds.push_back({clock_.get(), POLLIN, 0});
}

void FileTimers::handle(const std::vector<pollfd>& fds) {
  if (!is_ready(fds, pipe_.get()) && !is_ready(fds, clock_.get())) return;
  read_requests();  // a release that has come in time counts
  expire();
  set_clock();
}

void FileTimers::read_requests() {
  std::array<char, 64 << 10> buffer;
  const ssize_t got = ::read(pipe_.get(), buffer.data(), buffer.size());
  if (got <= 0) return;
  rest_.append(buffer.data(), static_cast<std::size_t>(got));
  std::size_t begin = 0;
  for (std::size_t end; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    take(std::string_view(rest_).substr(begin, end - begin));
  }
  rest_.erase(0, begin);
  if (rest_.size() > PIPE_BUF) rest_.clear();  // no client writes so much
}

// A process has one timer per scope; an expiry before 1970 releases it.
void FileTimers::take(std::string_view line) {
  if (line.size() > PIPE_BUF) return;
  const json request = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!request.is_object()) return;
  const auto pid = request.find("pid"), scope = request.find("scope_id");
  const auto at = request.find("expiration_time"), signal = request.find("signal");
  const auto end = request.end();
  if (pid == end || !pid->is_number_integer() || scope == end || !scope->is_string()) return;
  if (at == end || !at->is_number() || signal == end || !signal->is_number_integer()) return;
  const std::pair key(pid->get<pid_t>(), printable(scope->get<std::string>()));
  if (at->get<double>() < 0) {
    timers_.erase(key);
  } else if (timers_.size() < kMostTimers || timers_.count(key) > 0) {
    timers_[key] = {at->get<double>(), signal->get<int>()};
  }
}

void FileTimers::expire() {
  const double now = unix_seconds();
  for (auto timer = timers_.begin(); timer != timers_.end();) {
    const auto& [key, value] = *timer;
    const bool over = value.at <= now;
    if (over && value.signal > 0 && value.signal < NSIG)
      expired_({key.first, value.signal, key.second});
    timer = over ? timers_.erase(timer) : std::next(timer);
  }
}

void FileTimers::set_clock() const {
  const auto first = std::min_element(timers_.begin(), timers_.end(),
                                      [](auto& a, auto& b) { return a.second.at < b.second.at; });
  itimerspec due{};
  if (first != timers_.end()) {
    constexpr double kFarthest = 1e10;
    const double at = std::min(std::max(first->second.at, 1.0), kFarthest);
    due.it_value.tv_sec = static_cast<time_t>(at);
    due.it_value.tv_nsec = static_cast<long>((at - std::floor(at)) * 1e9);
  }
  ::timerfd_settime(clock_.get(), TFD_TIMER_ABSTIME, &due, nullptr);
}

}  // namespace ddp::launch
