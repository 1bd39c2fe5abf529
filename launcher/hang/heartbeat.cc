#include "launcher/hang/heartbeat.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <utility>

#include "launcher/base/text.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr std::string_view kPromise = "timeout=";
constexpr std::string_view kTimes = "times=";
constexpr std::size_t kLongestBeatText = 300;
constexpr double kLongestPromise = 1e7;  // seconds

long long nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000LL + time.tv_nsec; }

std::optional<double> parse_seconds(std::string_view text) {
  const auto seconds = number_in<double>(text);
  return seconds && *seconds >= 0 && *seconds <= kLongestPromise ? seconds : std::nullopt;
}

std::optional<Clock::duration> parse_promise(std::string_view text) {
  const auto seconds = parse_seconds(text);
  if (!seconds || *seconds == 0) return std::nullopt;
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*seconds));
}

// Empty if malformed.
std::vector<PhaseTime> parse_times(std::string_view list) {
  constexpr std::size_t kLongestPhase = 32;
  std::vector<PhaseTime> times;
  while (!list.empty()) {
    const auto end = std::min(list.find(','), list.size());
    const std::string_view entry = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    const auto colon = std::min(entry.find(':'), entry.size());
    const auto seconds = parse_seconds(entry.substr(std::min(colon + 1, entry.size())));
    if (colon == 0 || colon > kLongestPhase || !seconds || times.size() == kMostPhases) return {};
    times.push_back({printable(entry.substr(0, colon)), *seconds});
  }
  return times;
}

// The text is foreign and ends up on a terminal.
void note_progress(std::string_view word, Progress& progress) {
  const auto value_of = [&](std::string_view name) {
    return word.substr(0, name.size()) == name ? printable(word.substr(name.size())) : "";
  };
  if (const auto step = number_in<long long>(value_of("step="))) progress.step = step;
  if (auto value = value_of("phase="); !value.empty()) progress.phase = std::move(value);
  if (auto value = value_of("waiting="); !value.empty()) progress.waiting = std::move(value);
  if (auto value = value_of("collective="); !value.empty()) progress.collective = std::move(value);
}

std::string_view line_in(std::string_view text) {
  return text.substr(0, std::min(text.find_first_of(std::string_view("\n\0", 2)), text.size()));
}

// Missing folders alone, and private ones: its place may be open to all users.
void restore_folder(const std::string& folder) {
  if (folder.empty() || ::mkdir(folder.c_str(), 0700) == 0 || errno != ENOENT) return;
  restore_folder(folder.substr(0, folder.rfind('/')));
  ::mkdir(folder.c_str(), 0700);
}

}  // namespace

LifeSign parse_heartbeat(std::string_view line) {
  LifeSign sign;
  line = line_in(line);
  while (!line.empty()) {
    const auto end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
    if (word.empty()) continue;
    if (word.rfind(kPromise, 0) == 0) {
      if (const auto promise = parse_promise(word.substr(kPromise.size()))) {
        sign.promise = promise;
        continue;
      }
    }
    if (word == kSparesWord || word == kEveryRankWord) {
      (word == kSparesWord ? sign.offers_standby : sign.for_every_rank) = true;
      continue;
    }
    if (word.starts_with(kTimes)) {
      sign.times = parse_times(word.substr(kTimes.size()));
      if (!sign.times.empty()) continue;
    }
    note_progress(word, sign.progress);
    if (!sign.text.empty()) sign.text += ' ';
    sign.text += printable(word);
  }
  sign.text.resize(std::min(sign.text.size(), kLongestBeatText));
  return sign;
}

Heartbeat::Heartbeat(std::string path, Clock::time_point start) : path_(std::move(path)) {
  sign_.at = looked_ = start;
  if (!path_.empty()) ::unlink(path_.c_str());
}

// It may be a pipe or worse by now: do not block on it or trust its size.
void Heartbeat::reopen() {
  Descriptor file(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (file.get() < 0 && errno == ENOENT) restore_folder(path_.substr(0, path_.rfind('/')));
  struct stat status {};
  if (::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode)) file_ = std::move(file);
}

const LifeSign& Heartbeat::look(Clock::time_point now) {
  if (path_.empty()) return sign_;
  reopen();
  struct stat status {};
  std::array<char, 1024> buffer{};
  if (::fstat(file_.get(), &status) != 0) return sign_;
  const ssize_t got = ::pread(file_.get(), buffer.data(), buffer.size(), 0);
  std::string content(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  // It was written after the last check, whatever the file server's clock says.
  const auto since = std::exchange(looked_, now);
  if (nanoseconds(status.st_mtim) == written_ && content == content_) return sign_;

  content_ = std::move(content);
  written_ = nanoseconds(status.st_mtim);
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  const auto age = std::chrono::nanoseconds(std::max(0LL, nanoseconds(wall) - written_));
  sign_.at = std::max({sign_.at, since, now - age});
  if (content_.empty()) return sign_;
  LifeSign said = parse_heartbeat(content_);
  said.at = sign_.at;
  sign_ = std::move(said);
  return sign_;
}

}  // namespace ddp::launch
