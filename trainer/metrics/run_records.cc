#include "trainer/metrics/run_records.h"

#include <cstdlib>
#include <utility>

#include "launcher/worker_contract.h"
#include "trainer/config/config.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/metrics/event_file_sink.h"
#include "trainer/metrics/jsonl_sink.h"
#include "trainer/metrics/memory.h"
#include "trainer/metrics/prometheus_sink.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"
#include "trainer/runtime/process/start_time.h"

namespace ddp::train {
namespace {

std::vector<std::unique_ptr<MetricSink>> make_sinks(const Config& config) {
  std::vector<std::unique_ptr<MetricSink>> sinks;
  const std::string& folder = config.hydra.run_dir;
  if (config.logging.jsonl) sinks.push_back(std::make_unique<JsonlSink>(folder));
  if (config.logging.tensorboard)
    sinks.push_back(
        std::make_unique<EventFileSink>(folder + "/tensorboard", config_to_yaml(config)));
  const char* memory = std::getenv(launch::kShmDir);
  if (memory != nullptr && *memory != '\0')
    sinks.push_back(std::make_unique<PrometheusSink>(memory));
  return sinks;
}

}  // namespace

RunRecords::RunRecords(const Config& config, Log& log)
    : config_(config), log_(log), recorder_(make_sinks(config)) {}

void RunRecords::begin_after(int64_t step) {
  recorder_.begin_after(step);
  began_ = Clock::now();
  began_after_ = step;
  if (trackers_.empty()) start_tracking();
}

void RunRecords::start_tracking() {
  const MetricsConfig& wanted = config_.metrics;
  if (wanted.wandb == WandbMode::kOff && !wanted.mlflow) return;
  flush();  // the lines of a run that this one replaces are no longer in the file
  const std::string& folder = config_.hydra.run_dir;
  if (wanted.wandb != WandbMode::kOff)
    trackers_.push_back(std::make_unique<Tracker>(folder, "wandb", name_of(wanted.wandb), log_));
  if (wanted.mlflow) trackers_.push_back(std::make_unique<Tracker>(folder, "mlflow", "", log_));
}

void RunRecords::end_tracking(std::chrono::milliseconds patience) {
  flush();
  const auto deadline = Clock::now() + patience;
  for (const auto& tracker : trackers_) tracker->finish();
  for (const auto& tracker : trackers_) tracker->wait_until(deadline);
}

void RunRecords::write_info(const RunFacts& facts) {
  if (!config_.logging.jsonl) return;
  const std::string text = run_info_json(config_, facts);
  try {
    const std::string path = config_.hydra.run_dir + "/" + kRunInfoFile;
    remove_stale_temporaries(path);
    publish_text(path, text);
  } catch (const std::exception& error) {
    log_.warning(error.what());
  }
}

void RunRecords::write(MetricRecord record) {
  record.time = unix_seconds();
  for (const auto& [name, value] : record.values) {
    if (name == "loss") (record.split == "train" ? progress_.loss : progress_.eval_loss) = value;
    if (name == "lr") progress_.learning_rate = value;
    if (const auto end = name.find("_per_second"); end != std::string::npos) {
      progress_.per_second = value;
      progress_.unit = name.substr(0, end);
    }
  }
  recorder_.write(std::move(record));
  say_troubles();
}

void RunRecords::write_text(TextRecord record) {
  record.time = unix_seconds();
  recorder_.write_text(std::move(record));
  say_troubles();
}

void RunRecords::write_confusion(ConfusionRecord record) {
  record.time = unix_seconds();
  recorder_.write_confusion(std::move(record));
  say_troubles();
}

void RunRecords::say_troubles() {
  for (const auto& trouble : recorder_.take_troubles()) log_.warning(trouble);
  for (const auto& tracker : trackers_) tracker->log_lines();
}

void RunRecords::step_done(int64_t step, int64_t epoch, int64_t last_step) {
  constexpr std::chrono::milliseconds kBetweenDrawings{100};
  const auto now = Clock::now();
  if (!log_.has_live_line() || now < drawn_ + kBetweenDrawings) return;
  drawn_ = now;
  progress_.step = step;
  progress_.epoch = epoch;
  progress_.last_step = last_step;
  progress_.memory = memory_use().resident;
  progress_.seconds_left = seconds_left(step, last_step);
  // The last column stays free: some terminals go on to the next line there.
  log_.set_live_line(progress_line(progress_, Log::live_line_width() - 1));
}

std::optional<double> RunRecords::seconds_left(int64_t step, int64_t last_step) const {
  const auto made = static_cast<double>(step - began_after_);
  if (made <= 0) return std::nullopt;
  const double seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  return seconds / made * static_cast<double>(last_step - step);
}

}  // namespace ddp::train
