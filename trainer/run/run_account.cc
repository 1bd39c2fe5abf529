#include "trainer/run/run_account.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/worker_contract.h"
#include "trainer/metrics/text.h"
#include "trainer/runtime/files/atomic_file.h"
#include "trainer/runtime/files/small_file.h"
#include "trainer/runtime/files/xxh3.h"
#include "trainer/runtime/process/start_time.h"

namespace ddp::train {
namespace {

using OrderedJson = nlohmann::ordered_json;
constexpr std::size_t kRecordBytes = 16384;  // one write; the oldest restarts go when it gets full
constexpr std::size_t kMostRestarts = 50;

std::string account_file(const std::string& snapshot_path) {
  const char* folder = std::getenv(launch::kShmDir);
  if (folder == nullptr || *folder == '\0') return "";
  return fmt::format("{}/account-{}", folder,
                     xxh3_hex(snapshot_path.data(), snapshot_path.size()).substr(0, 16));
}

OrderedJson to_json(const std::optional<double>& value) {
  return value ? OrderedJson(*value) : OrderedJson();
}

std::optional<double> seconds_at(const OrderedJson& json, const char* key) {
  if (!json.contains(key) || !json[key].is_number()) return std::nullopt;
  return json[key].get<double>();
}

OrderedJson to_json(const RestartRecord& restart) {
  return {{"rank", restart.rank >= 0 ? OrderedJson(restart.rank) : OrderedJson()},
          {"cause", restart.cause},
          {"lost_steps", restart.lost_steps},
          {"to_detect", to_json(restart.to_detect)},
          {"to_restart", to_json(restart.to_restart)},
          {"to_first_step", to_json(restart.to_first_step)}};
}

RestartRecord restart_from_json(const OrderedJson& json) {
  const auto rank = seconds_at(json, "rank");
  return {rank ? static_cast<int>(*rank) : -1,  json.value("cause", std::string()),
          json.value("lost_steps", int64_t{0}), seconds_at(json, "to_detect"),
          seconds_at(json, "to_restart"),       seconds_at(json, "to_first_step")};
}

OrderedJson to_json(const SaveCounts& saves) {
  return {{"saved", saves.saved},
          {"failed", saves.failed},
          {"skipped", saves.skipped},
          {"in_memory", saves.in_memory},
          {"stall_seconds", saves.stall_seconds},
          {"longest_stall", saves.longest_stall}};
}

SaveCounts saves_from_json(const OrderedJson& json) {
  SaveCounts saves;
  saves.saved = json.value("saved", int64_t{0});
  saves.failed = json.value("failed", int64_t{0});
  saves.skipped = json.value("skipped", int64_t{0});
  saves.in_memory = json.value("in_memory", int64_t{0});
  saves.stall_seconds = json.value("stall_seconds", 0.0);
  saves.longest_stall = json.value("longest_stall", 0.0);
  return saves;
}

/// When the account before this one in this process ended, Unix seconds; 0: there was none.
double& previous_end() {
  static double end = 0.0;
  return end;
}

/// The start of the process, of a sweep's later jobs the end of the one before.
double job_start() { return previous_end() > 0.0 ? previous_end() : process_start_unix_seconds(); }

std::string seconds_or_none(const std::optional<double>& seconds) {
  return seconds ? fmt::format("{:.2f} s", *seconds) : std::string("unknown");
}

}  // namespace

RunAccount::RunAccount(const std::string& snapshot_path, int64_t resumed_step,
                       const std::string& summary)
    : began_(job_start()) {
  totals_.job_began = began_;
  totals_.first_step = totals_.last_step = resumed_step;
  const std::string file = account_file(snapshot_path);
  if (!file.empty())
    fd_ = Descriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd_ >= 0) read_earlier_attempts(resumed_step);
  if (!summary.empty()) remove_stale_temporaries(summary);  // a job was killed while it wrote
  read_earlier_jobs(summary);
  write_totals();  // an attempt that ends before its first step counts, too
}

RunAccount::~RunAccount() { previous_end() = unix_seconds(); }

// What does not parse is nothing: the account is not worth a run.
void RunAccount::read_earlier_attempts(int64_t resumed_step) {
  std::string text(kRecordBytes, ' ');
  const ssize_t got = ::pread(fd_, text.data(), text.size(), 0);
  if (got <= 0) return;
  try {
    const OrderedJson json = OrderedJson::parse(text.substr(0, static_cast<std::size_t>(got)));
    Totals totals;
    totals.job_began = json.at("job_began").get<double>();
    totals.first_step = json.at("first_step").get<int64_t>();
    totals.last_step = json.at("last_step").get<int64_t>();
    totals.last_step_at = json.at("last_step_at").get<double>();
    totals.median_step = json.at("median_step").get<double>();
    totals.redone_steps = json.at("redone_steps").get<int64_t>();
    totals.saves = saves_from_json(json.at("saves"));
    for (const auto& restart : json.at("restarts"))
      totals.restarts.push_back(restart_from_json(restart));
    totals_ = std::move(totals);
  } catch (const OrderedJson::exception&) {
    return;
  }
  add_restart(resumed_step);
}

void RunAccount::add_restart(int64_t resumed_step) {
  RestartRecord restart;
  restart.lost_steps = std::max<int64_t>(0, totals_.last_step - resumed_step);
  const char* failure = std::getenv(launch::kLastFailure);
  const OrderedJson said = OrderedJson::parse(failure != nullptr ? failure : "", nullptr, false);
  if (said.is_object()) {
    restart.rank = said.value("rank", -1);
    restart.cause = said.value("cause", std::string());
    if (const auto seen = seconds_at(said, "time")) {
      // Rank 0 may still finish a step while ddp-run sees another rank die.
      if (totals_.last_step_at > 0) restart.to_detect = std::max(0.0, *seen - totals_.last_step_at);
      // The kernel counts a process's start in hundredths of a second.
      restart.to_restart = std::max(0.0, began_ - *seen);
    }
  } else {
    restart.cause = "nodes joined or left";
  }
  totals_.redone_steps += restart.lost_steps;
  totals_.last_step = resumed_step;
  totals_.restarts.push_back(restart);
  if (totals_.restarts.size() > kMostRestarts) totals_.restarts.erase(totals_.restarts.begin());
}

// Attempts of this job that ended with their state saved have written the file as well.
void RunAccount::read_earlier_jobs(const std::string& summary) {
  try {
    const auto before = OrderedJson::parse(read_small_file(summary).value_or("{}"));
    const bool of_this_job = before.at("job_began").get<double>() == totals_.job_began;
    if (totals_.first_step == 0 && !of_this_job) return;  // of another run in this folder
    was_finished_ = before.value("outcome", std::string()) == "finished";
    const auto earlier = before.value("earlier_jobs", OrderedJson::object());
    EarlierJobs all = {earlier.value("jobs", int64_t{0}), earlier.value("seconds", 0.0),
                       earlier.value("useful_seconds", 0.0), earlier.value("restarts", int64_t{0})};
    if (!of_this_job) {
      const double wall = before.at("wall_seconds").get<double>();
      ++all.jobs;
      all.seconds += wall;
      all.useful_seconds += wall * seconds_at(before, "goodput").value_or(0.0);
      all.restarts += static_cast<int64_t>(before.at("restarts").size());
    }
    earlier_ = all;
  } catch (const std::exception&) {  // no such account, or none of this version
  }
}

void RunAccount::step_done(int64_t step, const SaveCounts& saves) {
  const std::lock_guard lock(mutex_);
  const double now = unix_seconds();
  if (previous_step_at_) {
    times_.add(now - *previous_step_at_);
  } else if (!totals_.restarts.empty()) {
    totals_.restarts.back().to_first_step = now - began_;
  }
  previous_step_at_ = now;
  totals_.last_step = step;
  totals_.last_step_at = now;
  own_saves_ = saves;
  write_totals();
}

double RunAccount::median_step() const {
  return times_.count() > 0 ? times_.median() : totals_.median_step;
}

void RunAccount::write_totals() {
  if (fd_ < 0) return;
  std::string text = totals_json();
  for (; text.size() > kRecordBytes && !totals_.restarts.empty(); text = totals_json())
    totals_.restarts.erase(totals_.restarts.begin());
  text.resize(kRecordBytes, ' ');
  // One that is lost is followed by another one.
  [[maybe_unused]] const auto written = ::pwrite(fd_, text.data(), kRecordBytes, 0);
}

SaveCounts RunAccount::all_saves() const {
  SaveCounts all = totals_.saves;
  all.saved += own_saves_.saved;
  all.failed += own_saves_.failed;
  all.skipped += own_saves_.skipped;
  all.in_memory += own_saves_.in_memory;
  all.stall_seconds += own_saves_.stall_seconds;
  all.longest_stall = std::max(all.longest_stall, own_saves_.longest_stall);
  return all;
}

std::string RunAccount::totals_json() const {
  OrderedJson restarts = OrderedJson::array();
  for (const auto& restart : totals_.restarts) restarts.push_back(to_json(restart));
  return OrderedJson{{"job_began", totals_.job_began}, {"first_step", totals_.first_step},
                     {"last_step", totals_.last_step}, {"last_step_at", totals_.last_step_at},
                     {"median_step", median_step()},   {"redone_steps", totals_.redone_steps},
                     {"saves", to_json(all_saves())},  {"restarts", restarts}}
      .dump();
}

std::optional<double> RunAccount::goodput() const {
  if (median_step() <= 0.0) return std::nullopt;
  const double wall = unix_seconds() - totals_.job_began;
  const auto useful = static_cast<double>(totals_.last_step - totals_.first_step);
  return std::min(1.0, useful * median_step() / wall);
}

std::vector<std::string> RunAccount::text() const {
  std::vector<std::string> lines;
  const SaveCounts saves = all_saves();
  const auto share = goodput();
  if (earlier_.jobs > 0) {
    const double wall = unix_seconds() - totals_.job_began;
    const auto restarts = static_cast<int64_t>(totals_.restarts.size()) + earlier_.restarts;
    lines.push_back(
        fmt::format("The whole run: {:.1f} s in {}, {}; this job:", earlier_.seconds + wall,
                    counted(earlier_.jobs + 1, "job"), counted(restarts, "restart")));
  }
  lines.push_back(fmt::format(
      "Goodput {}: {} x {:.1f} ms (median) in {:.1f} s; {} repeated",
      share ? fmt::format("{:.1f} %", 100.0 * *share) : std::string("unknown"),
      counted(totals_.last_step - totals_.first_step, "useful step"), 1e3 * median_step(),
      unix_seconds() - totals_.job_began, counted(totals_.redone_steps, "step")));
  lines.push_back(fmt::format(
      "Snapshots: {} saved, {} failed, {} skipped, {} in memory; training stalled {:.1f} ms per "
      "save, {:.1f} ms at most",
      saves.saved, saves.failed, saves.skipped, saves.in_memory,
      saves.saved > 0 ? 1e3 * saves.stall_seconds / static_cast<double>(saves.saved) : 0.0,
      1e3 * saves.longest_stall));
  for (const auto& restart : totals_.restarts) {
    lines.push_back(
        fmt::format("Restart: {}{}: detected after {}, restarted after {}, first step after {}; {} "
                    "repeated",
                    restart.rank >= 0 ? fmt::format("rank {}, ", restart.rank) : "",
                    restart.cause.empty() ? "cause unknown" : restart.cause,
                    seconds_or_none(restart.to_detect), seconds_or_none(restart.to_restart),
                    seconds_or_none(restart.to_first_step), counted(restart.lost_steps, "step")));
  }
  return lines;
}

std::string RunAccount::summary_json(const RunEnding& ending) const {
  const std::lock_guard lock(mutex_);
  OrderedJson json = OrderedJson::parse(totals_json());
  OrderedJson summary = {{"outcome", ending.outcome},
                         {"goodput", to_json(goodput())},
                         {"useful_steps", totals_.last_step - totals_.first_step},
                         {"median_step_seconds", median_step()},
                         {"wall_seconds", unix_seconds() - totals_.job_began}};
  if (earlier_.jobs > 0) {
    summary["earlier_jobs"] = {{"jobs", earlier_.jobs},
                               {"seconds", earlier_.seconds},
                               {"useful_seconds", earlier_.useful_seconds},
                               {"restarts", earlier_.restarts}};
  }
  summary.update(json);
  for (const auto& [part, seconds] : ending.start_parts) summary["start_seconds"][part] = seconds;
  for (const double peak : ending.peak_memory.host)
    summary["peak_memory_bytes"].push_back(static_cast<int64_t>(peak));
  for (const double peak : ending.peak_memory.device)
    summary["peak_device_memory_bytes"].push_back(static_cast<int64_t>(peak));
  return summary.dump(2) + "\n";
}

void RunAccount::write_json(const std::string& path, const RunEnding& ending) const {
  publish_text(path, summary_json(ending));
}

}  // namespace ddp::train
