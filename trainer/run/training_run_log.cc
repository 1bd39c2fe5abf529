// What a run says and records: the log, metrics, the account.
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/config/config.h"
#include "trainer/config/param_groups.h"
#include "trainer/metrics/memory.h"
#include "trainer/metrics/progress_line.h"
#include "trainer/metrics/text.h"
#include "trainer/model/ops/gpu_kernels.h"
#include "trainer/optim/numerics.h"
#include "trainer/optim/trained_parameters.h"
#include "trainer/parallel/device/device_share.h"
#include "trainer/run/run_end.h"
#include "trainer/run/training_run.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/process/start_time.h"
#include "trainer/runtime/process/stop_signal.h"

namespace ddp::train {
namespace {

/// The loss, then the other metrics by name.
std::string eval_text(const Metrics& metrics, std::string_view of = "Eval") {
  std::string text = fmt::format("{} Loss {:.6f}", of, metrics.front().second);
  for (std::size_t i = 1; i < metrics.size(); ++i) {
    const auto& [name, value] = metrics[i];
    text += std::floor(value) == value && value > 1.0 ? fmt::format(" | {:.0f} {}", value, name)
                                                      : fmt::format(" | {} {:.4f}", name, value);
  }
  return text;
}

Histogram histogram_of(const torch::Tensor& tensor) {
  const auto values = tensor.detach().to(torch::kCPU, torch::kFloat32).contiguous();
  return Histogram::of({values.const_data_ptr<float>(), static_cast<std::size_t>(values.numel())});
}

/// The unit of a speed: "tok/s", "images/s".
std::string rate_unit(std::string_view unit) {
  return unit == "tokens" ? "tok/s" : fmt::format("{}/s", unit);
}

/// "peak 812.10MB" or "peak 640.00MB to 812.10MB on 4 ranks, most on rank 2"
std::string memory_text(const std::vector<double>& peaks) {
  const auto [least, most] = std::minmax_element(peaks.begin(), peaks.end());
  if (peaks.size() == 1) return fmt::format("peak {}B", short_number(*most));
  return fmt::format("peak {}B to {}B on {} ranks, most on rank {}", short_number(*least),
                     short_number(*most), peaks.size(), most - peaks.begin());
}

/// "step 30, f1 0.912300, eval loss 0.304100": why this snapshot is the best by `metric`.
std::string merit_of(const SnapshotEntry& best, const std::string& metric) {
  const std::string loss = fmt::format("eval loss {:.6f}", *best.eval_loss);
  if (metric == "loss") return fmt::format("step {}, {}", best.step, loss);
  return fmt::format("step {}, {} {:.6f}, {}", best.step, metric, std::abs(best.score), loss);
}

}  // namespace

void TrainingRun::log_time_breakdown() {
  if (!account_) return;
  for (const auto& line : account_->text()) log_.info(line);
}

void TrainingRun::log_step(const StepOutput& output, int64_t epoch) {
  monitor_.enter(Phase::kAllReduce, "all_reduce");
  last_loss_ = trainer_.global_mean_loss(output);
  last_loss_step_ = trainer_.step();
  const Metrics metrics = trainer_.task().step_metrics(group_);
  const auto seconds =
      group_.gather_doubles(before_backward_ / static_cast<double>(steps_since_log_));
  before_backward_ = 0.0;
  steps_since_log_ = 0;
  if (!group_.is_main()) return;
  const double rate = throughput_.lap();
  const double grad_norm = to_host(output.grad_norm).item<double>();
  std::string line =
      fmt::format("Epoch {} | Step {} | Train Loss {:.6f} | lr {:.3e} | grad norm {:.4f} | {} {}",
                  epoch + 1, trainer_.step(), last_loss_, output.learning_rate, grad_norm,
                  short_number(rate), rate_unit(trainer_.task().unit()));
  if (trainer_.scaler().enabled()) {
    const auto scale = GradScaler::unpack(to_host(trainer_.scaler().packed_state())).scale;
    line += fmt::format(" | loss scale {}", scale);
    if (to_host(output.not_finite).item<float>() != 0.0F)
      line += " | gradients overflowed: update skipped";
  }
  const int64_t steps = trainer_.steps_in_all();
  line += fmt::format(" | {}/{}", trainer_.step(), steps);
  if (const auto left = records_->seconds_left(trainer_.step(), steps))
    line += fmt::format(", {} left", duration_text(*left));
  constexpr std::size_t kMostTelling = 2;
  for (std::size_t i = 0; i < std::min(kMostTelling, metrics.size()); ++i)
    line += fmt::format(" | {} {:.4f}", metrics[i].first, metrics[i].second);
  log_.step(line);
  record_step(output, metrics, grad_norm, rate);
  log_skew(seconds);
}

void TrainingRun::record_step(const StepOutput& output, const Metrics& metrics, double grad_norm,
                              double rate) {
  const Task& task = trainer_.task();
  MetricRecord record{trainer_.step(), epochs_done(), "train", {}, 0.0};
  record.values = {{"loss", last_loss_},
                   {"lr", output.learning_rate},
                   {"grad_norm", grad_norm},
                   {fmt::format("{}_per_second", task.unit()), rate}};
  record.values.insert(record.values.end(), metrics.begin(), metrics.end());
  if (config_.logging.peak_tflops > 0.0 && task.flops_per_unit() > 0.0) {
    const double mfu = model_flops_utilization(rate, task.flops_per_unit(),
                                               1e12 * config_.logging.peak_tflops, group_.size());
    record.values.emplace_back("mfu", mfu);
  }
  record.values.emplace_back("memory_bytes", static_cast<double>(memory_use().resident));
  records_->write(std::move(record));
}

double TrainingRun::epochs_done() const {
  const auto& sampler = trainer_.sampler();
  const auto samples = static_cast<double>(sampler.steps_per_epoch() * sampler.global_batch());
  const DataCursor& cursor = trainer_.cursor();
  return static_cast<double>(cursor.epoch) + static_cast<double>(cursor.position) / samples;
}

void TrainingRun::log_evaluation(const Evaluation& evaluation, bool made_before) {
  const DataCursor& cursor = trainer_.cursor();
  log_.info(fmt::format("Epoch {} | Step {} | {}", cursor.epoch_number(), trainer_.step(),
                        eval_text(evaluation.metrics)));
  // A run that was complete when it began evaluates once more.
  if (!made_before) record_evaluation("eval", evaluation);
}

void TrainingRun::log_test(const Evaluation& evaluation, bool is_new) {
  log_.info(fmt::format("Step {} | {}", trainer_.step(), eval_text(evaluation.metrics, "Test")));
  if (!is_new) return;
  record_evaluation("test", evaluation);
  records_->flush();
}

void TrainingRun::record_evaluation(const char* split, const Evaluation& evaluation) {
  records_->write({trainer_.step(), epochs_done(), split, evaluation.metrics, 0.0});
  if (!evaluation.confusion.empty())
    records_->write_confusion({trainer_.step(), split, evaluation.confusion, 0.0});
}

// The gradients are still there: averaged over the ranks and clipped, as the optimizer got them.
void TrainingRun::record_histograms() {
  monitor_.enter(Phase::kHistograms);
  const auto weights = trainer_.whole_weights();
  const auto gradients = trainer_.gradients();
  if (!records_) return;
  const auto write = [&](const std::string& name, const torch::Tensor& tensor) {
    records_->write_histogram({trainer_.step(), name, histogram_of(tensor), unix_seconds()});
  };
  for (const auto& each : weights)
    write("parameters/" + each.name.substr(std::string_view("model.").size()), each.tensor);
  for (const auto& gradient : gradients) write("gradients/" + gradient.name, gradient.tensor);
}

// Where the ranks hold no shards, rank 0 alone; the others begin the next step meanwhile and wait
// for it in a collective.
void TrainingRun::record_sample() {
  const auto text = trainer_.sample([this] {
    monitor_.enter(Phase::kSampling);
    return StopSignal::pending() == 0;
  });
  if (!text) return;
  log_.info(fmt::format("Step {} | Sample:\n{}", trainer_.step(), *text));
  records_->write_text({trainer_.step(), "sample", *text, 0.0});
}

// Up to the backward pass nobody waits for anybody: who takes longer there holds up the others.
void TrainingRun::log_skew(const std::vector<double>& seconds) {
  constexpr double kNotable = 2.0;       // times the median
  constexpr double kNotableTime = 0.01;  // s
  std::vector<double> sorted = seconds;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  const auto slowest = std::max_element(seconds.begin(), seconds.end());
  if (*slowest < kNotable * *middle || *slowest < *middle + kNotableTime) return;
  log_.info(
      fmt::format("Slow rank: rank {} takes {:.1f} ms for data and forward pass, the median "
                  "rank {:.1f} ms",
                  slowest - seconds.begin(), 1e3 * *slowest, 1e3 * *middle));
}

void TrainingRun::log_start() const {
  const auto& c = config_.trainer;
  const auto& sampler = trainer_.sampler();
  const Task& task = trainer_.task();
  for (const auto& line : task.describe()) log_.setup(line);
  const auto shapes = task.whole_shapes();
  for (const auto& line : group_table(resolve_param_groups(config_, shapes), shapes))
    log_.setup(line);
  if (const auto& fresh = trainer_.without_state(); !fresh.empty()) {
    log_.setup(fmt::format("The snapshot has no optimizer state for {}, such as {}: it starts at 0",
                           counted(static_cast<int64_t>(fresh.size()), "parameter tensor"),
                           *fresh.begin()));
  }
  log_.setup(fmt::format(
      "Batch: {} per micro-batch x {} on {} = {}, {} {} per step; {} per epoch, {} in all",
      counted(c.batch_size, "sample"), counted(trainer_.batch_plan().micro_batches, "micro-batch"),
      counted(group_.size(), "rank"), counted(sampler.global_batch(), "sample"),
      sampler.global_batch() * task.units_per_sample(), task.unit(),
      counted(sampler.steps_per_epoch(), "step"), trainer_.steps_in_all()));
  if (sampler.left_out() > 0) {
    log_.setup(fmt::format(
        "Epochs: {} of {} samples do not fill a step and are left out, other ones in each epoch",
        sampler.left_out(), task.training().size()));
  }
  const auto cut = trainer_.schedule().cut_text(trainer_.steps_in_all());
  if (!cut.empty()) log_.warning(cut);
  if (!trainer_.batch_plan().note.empty()) log_.setup(trainer_.batch_plan().note);
  const auto& plan = trainer_.device_plan();
  log_.setup(fmt::format("Device: {}, backend {}, precision {}, {} per rank", plan.device.str(),
                         group_.c10d() ? group_.backend_text(plan) : "none (one process)",
                         precision_name(c, plan.device),
                         counted(torch::get_num_threads(), "thread")));
  if (const auto text = trainer_.strategy().pipeline_text(); !text.empty())
    log_.setup("Pipeline: " + text);
  if (trainer_.holds_shards()) {
    log_.setup(fmt::format(
        "Strategy: {}, rank 0 updates {} parameters", name_of(config_.distributed.strategy),
        short_number(static_cast<double>(trainer_.strategy().updated_elements()))));
  }
  if (const auto share = share_text(config_.distributed, plan); !share.empty())
    log_.setup("Virtual devices: " + share);
  if (c.tf32 && plan.device.is_cpu())
    log_.setup("trainer_config.tf32: without effect, as this run computes on the CPU");
  records_->write_info(facts());
  log_.setup(fmt::format("Snapshots: {}", c.snapshot_path));
}

std::string TrainingRun::summary_file() const {
  return config_.hydra.run_dir + "/run_summary.json";
}

RunFacts TrainingRun::facts() const {
  const auto& sampler = trainer_.sampler();
  const Task& task = trainer_.task();
  const auto& plan = trainer_.device_plan();
  RunFacts facts = machine_facts();
  facts.emplace_back("run_id", folder_.run_id());
  facts.emplace_back("libtorch", std::string(TORCH_VERSION));
  facts.emplace_back("device", plan.device.str());
  facts.emplace_back("backend", group_.c10d() ? plan.backend_name() : "none (one process)");
  facts.emplace_back("precision", precision_name(config_.trainer, plan.device));
  if (config_.trainer.deterministic) facts.emplace_back("algorithms", "deterministic");
  facts.emplace_back("ranks", int64_t{group_.size()});
  facts.emplace_back("threads_per_rank", int64_t{torch::get_num_threads()});
  facts.emplace_back("samples_per_step", sampler.global_batch());
  facts.emplace_back(fmt::format("{}_per_step", task.unit()),
                     sampler.global_batch() * task.units_per_sample());
  facts.emplace_back("steps_per_epoch", sampler.steps_per_epoch());
  facts.emplace_back("flops_per_" + std::string(task.unit().substr(0, task.unit().size() - 1)),
                     task.flops_per_unit());
  for (const auto& line : task.describe()) {
    const std::size_t colon = std::min(line.find(": "), line.size() - 2);
    facts.emplace_back(line.substr(0, colon), line.substr(colon + 2));
  }
  return facts;
}

// For the job that continues this one, should it die. end_account() reports a failure.
void TrainingRun::write_unfinished_account() const {
  try {
    account_->write_json(summary_file(), {"unfinished"});
  } catch (const RunError&) {
  }
}

// After the test, which the next job makes up for if this one dies before.
void TrainingRun::end_account(const PeakMemory& peak_memory) {
  try {
    account_->write_json(summary_file(), {stop_signal_ == 0 ? "finished" : "preempted",
                                          monitor_.start_times().parts(), peak_memory});
  } catch (const RunError& error) {
    log_.warning(fmt::format("no account of this run: {}", error.what()));
  }
}

void TrainingRun::log_end(const PeakMemory& peak_memory) {
  const auto& c = config_.trainer;
  const bool stopped_early = trainer_.early_stopping().stops();
  const std::string state = stop_signal_ == 0
                                ? stopped_early ? "Training stopped early" : "Training finished"
                                : fmt::format("Stopped by signal {} and saved", stop_signal_);
  log_.info(fmt::format("{}: {} ({} in all), {}, {:.1f} s, {} {}", state,
                        counted(trainer_.step() - first_step_, "step"), trainer_.step(),
                        counted(trainer_.cursor().epoch, "epoch"),
                        throughput_.seconds_since_start(), short_number(throughput_.average()),
                        rate_unit(trainer_.task().unit())));
  if (stopped_early) {
    log_.info(fmt::format(
        "Early stopping: the {} of {} evaluations in a row was not better by more than {} "
        "(trainer_config.early_stopping_patience, early_stopping_min_delta)",
        c.metric_for_best_model, *c.early_stopping_patience, c.early_stopping_min_delta));
  }
  if (trainer_.step() > first_step_) {
    const auto& eval = trainer_.last_eval();
    log_.info(fmt::format(
        "{}Last train loss {:.6f}{}",
        last_loss_step_ == trainer_.step() ? "" : fmt::format("Step {}: ", last_loss_step_),
        last_loss_, eval ? fmt::format(", eval loss {:.6f}", eval->loss) : ""));
  }
  if (trainer_.guard().bad_steps() > 0)
    log_.info(fmt::format("Bad steps: {}", trainer_.guard().bad_steps()));
  if (const int64_t steps = trainer_.step() - first_step_; 2 * all_overflows_ > steps) {
    log_.warning(
        fmt::format("{} of {} were skipped, as their gradients overflowed float16: the "
                    "model has hardly been trained; set trainer_config.amp_dtype=bfloat16, or "
                    "lower optimizer_config.learning_rate",
                    all_overflows_, counted(steps, "update")));
  }
  log_.info("Memory: " + memory_text(peak_memory.host));
  if (!peak_memory.device.empty())
    log_.info("GPU memory: " + memory_text(peak_memory.device) + ", of tensors");
  if (!gpu::load_failure().empty())
    log_.warning("This run was slower than it could be: trainer's GPU kernels were not loaded (" +
                 gpu::load_failure() + ")");
  account_->count_saves(keeper_->counts());
  log_time_breakdown();
  log_.info(fmt::format("Snapshot: {}; log: {}; account: {}", c.snapshot_path,
                        config_.hydra.log_file(), summary_file()));
  if (!profile_.summary().empty()) log_.info(profile_.summary());
  if (!profile_.communication().empty()) log_.info(profile_.communication());
  const auto* best = best_entry(folder_.entries());
  if (best != nullptr)
    log_.info(fmt::format("Best snapshot: {} ({})", folder_.path_of(*best),
                          merit_of(*best, c.metric_for_best_model)));
  const bool end_with_best = c.load_best_model_at_end && best != nullptr;
  const std::string last = shell_quoted(end_with_best ? folder_.path_of(*best) : c.snapshot_path);
  log_.info(stop_signal_ == 0 ? "Next: " + trainer_.task().next_command(last)
                              : std::string("Next: the same command continues from the snapshot"));
}

}  // namespace ddp::train
