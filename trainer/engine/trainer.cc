#include "trainer/engine/trainer.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "trainer/config/config_text.h"
#include "trainer/engine/resume_check.h"
#include "trainer/metrics/text.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/seed.h"
#include "trainer/runtime/stop_signal.h"

namespace ddp::train {
namespace {

std::vector<OptimizedParameter> optimized_parameters(const GPT& model) {
  std::vector<OptimizedParameter> result;
  for (auto& p : model->model_parameters()) result.push_back({p.name, p.tensor, {}, {}, p.decay});
  return result;
}

NamedParameters named_parameters(const GPT& model) {
  NamedParameters result;
  for (auto& p : model->model_parameters()) result.emplace_back(p.name, p.tensor);
  return result;
}

at::Generator default_generator(torch::Device device) {
  return at::globalContext().defaultGenerator(device);
}

void seed_generator(torch::Device device, uint64_t seed) {
  auto generator = default_generator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

uint64_t as_seed(const Config& config) { return static_cast<uint64_t>(config.trainer.seed); }

GPT build_model(const Config& config, const CharDataset& dataset, torch::Device device) {
  GPT model(config.gpt, dataset.vocabulary().size(), config.data.block_size,
            init_seed(as_seed(config)));
  model->to(device);
  model->train();
  return model;
}

}  // namespace

Trainer::Trainer(const Config& config, const DevicePlan& plan, ProcessGroup& group,
                 const CharDataset& dataset, Log& log, const std::optional<SnapshotMeta>& meta,
                 const OpenedSnapshot* snapshot)
    : config_(config),
      plan_(plan),
      group_(group),
      dataset_(dataset),
      log_(log),
      model_(build_model(config, dataset, plan.device)),
      amp_dtype_(autocast_dtype(config.trainer)),
      optimizer_(optimized_parameters(model_), config.optimizer),
      scaler_(amp_dtype_ == torch::kFloat16, plan.device),
      sampler_(dataset.training().size(), config.trainer.batch_size,
               config.trainer.grad_accumulation_steps * group.size(), as_seed(config)) {
  if (meta) restore(*meta, snapshot);
  ddp_ = std::make_unique<DistributedDataParallel>(named_parameters(model_), group_,
                                                   config.distributed);
  if (meta) broadcast_optimizer();
  warm_up_ddp();
  first_step_ = step_;
  saved_step_ = meta ? step_ : -1;
  keep_previous_ = snapshot == nullptr || snapshot->path == config.trainer.snapshot_path;
}

void Trainer::restore(const SnapshotMeta& meta, const OpenedSnapshot* snapshot) {
  for (const auto& line : check_resume(meta, config_, dataset_)) log_.info(line);
  if (snapshot != nullptr) {
    for (auto& p : optimizer_.parameters()) {
      snapshot->load_into("model." + p.name, p.parameter);
      snapshot->load_into("optimizer." + p.name + ".exp_avg", p.exp_avg);
      snapshot->load_into("optimizer." + p.name + ".exp_avg_sq", p.exp_avg_sq);
    }
  }
  const torch::NoGradGuard no_grad;
  optimizer_.step_count().fill_(meta.optimizer_step);
  scaler_.load_state(meta.grad_scaler);
  step_ = meta.step;
  cursor_ =
      same_data_order(meta, config_, dataset_) ? meta.cursor : DataCursor{meta.cursor.epoch, 0};
  cursor_ = sampler_.normalized(cursor_);
}

void Trainer::broadcast_optimizer() {
  std::vector<torch::Tensor> moments;
  for (auto& p : optimizer_.parameters()) {
    moments.push_back(p.exp_avg);
    moments.push_back(p.exp_avg_sq);
  }
  group_.broadcast(moments);
}

void Trainer::warm_up_ddp() {
  ddp_->warm_up([this] {
    const auto tokens =
        torch::zeros({1, 1}, torch::TensorOptions(torch::kInt64).device(plan_.device));
    torch::Tensor loss;
    {
      const Autocast autocast(plan_.device.type(), amp_dtype_);
      loss = model_->loss(tokens, tokens);
    }
    ddp_->prepare_for_backward(loss);
    loss.backward();
  });
}

StepOutput Trainer::train_step() {
  const int64_t micro_batches = config_.trainer.grad_accumulation_steps;
  StepOutput output;
  optimizer_.zero_grad();
  for (int64_t micro = 0; micro < micro_batches; ++micro) {
    const Batch batch = loader_->next();
    const auto inputs = batch.inputs.to(plan_.device, /*non_blocking=*/true);
    const auto targets = batch.targets.to(plan_.device, /*non_blocking=*/true);
    seed_generator(plan_.device,
                   dropout_seed(as_seed(config_), step_, micro * group_.size() + group_.rank()));
    ddp_->prepare_for_forward(/*sync=*/micro + 1 == micro_batches);
    torch::Tensor loss;
    {
      const Autocast autocast(plan_.device.type(), amp_dtype_);
      loss = model_->loss(inputs, targets);
    }
    output.losses.push_back(loss.detach());
    const auto scaled = scaler_.scale(loss / static_cast<double>(micro_batches));
    ddp_->prepare_for_backward(scaled);
    scaled.backward();
  }
  const auto gradients = optimizer_.gradients();
  output.found_inf = scaler_.unscale(gradients);
  output.grad_norm = clip_grad_norm(gradients, config_.trainer.grad_norm_clip);
  optimizer_.step(output.found_inf);
  scaler_.update(output.found_inf);
  ++step_;
  cursor_ = sampler_.next(cursor_);
  return output;
}

FitResult Trainer::fit() {
  FitResult result;
  if (group_.is_main()) log_start();
  if (finished()) {
    const bool by_steps = config_.trainer.max_steps && step_ >= *config_.trainer.max_steps;
    log_.info(fmt::format(
        "Nothing to train: {} is at step {}, epoch {}; raise trainer_config.{} to go on",
        config_.trainer.snapshot_path, step_, cursor_.epoch,
        by_steps ? "max_steps" : "max_epochs"));
    run_evaluation();
    if (last_eval_) result.eval_loss = last_eval_->loss;
    return result;
  }
  DataLoader::Options options{config_.trainer.batch_size,
                              config_.trainer.grad_accumulation_steps,
                              group_.rank(),
                              group_.size(),
                              config_.trainer.data_loader_workers,
                              plan_.device.is_cuda()};
  loader_ = std::make_unique<DataLoader>(dataset_.training(), sampler_, cursor_, options);
  throughput_ = Throughput();
  while (!finished() && result.stop_signal == 0) {
    auto stop = group_.all_reduce_max_async(StopSignal::pending());
    const int64_t epoch = cursor_.epoch;
    const StepOutput output = train_step();
    throughput_.add(sampler_.global_batch() * config_.data.block_size);
    const bool first = step_ == first_step_ + 1;
    if (first || step_ % config_.trainer.log_every_steps == 0 || finished())
      log_step(output, epoch);
    // The signals seen before this step began: every rank reads the same value and stops after the
    // same step.
    result.stop_signal = static_cast<int>(stop.wait());
    if (result.stop_signal == 0) after_step(cursor_.epoch != epoch);
  }
  if (saved_step_ != step_) save();
  if (result.stop_signal == 0 && evaluated_step_ != step_) run_evaluation();
  loader_.reset();
  group_.barrier();
  if (group_.is_main()) log_end(result);
  if (step_ > first_step_) result.train_loss = last_loss_;
  if (last_eval_) result.eval_loss = last_eval_->loss;
  return result;
}

bool Trainer::finished() const {
  const auto& limits = config_.trainer;
  return cursor_.epoch >= limits.max_epochs || (limits.max_steps && step_ >= *limits.max_steps);
}

void Trainer::after_step(bool epoch_ended) {
  const auto& every = config_.trainer;
  const bool save_now = (epoch_ended && cursor_.epoch % every.save_every == 0) ||
                        (every.save_every_steps && step_ % *every.save_every_steps == 0);
  const bool evaluate_now =
      epoch_ended || (every.eval_every_steps && step_ % *every.eval_every_steps == 0);
  if (!save_now && !evaluate_now) return;
  throughput_.pause();
  if (save_now) save();
  if (evaluate_now) run_evaluation();
  throughput_.resume();
}

double Trainer::global_mean_loss(const std::vector<torch::Tensor>& losses) {
  auto sum = torch::zeros({1}, torch::kFloat64);
  for (const auto& loss : losses) sum += loss.to(torch::kCPU, torch::kFloat64);
  group_.all_reduce_sum(sum);
  return sum.item<double>() /
         static_cast<double>(static_cast<int64_t>(losses.size()) * group_.size());
}

void Trainer::log_step(const StepOutput& output, int64_t epoch) {
  last_loss_ = global_mean_loss(output.losses);
  if (!group_.is_main()) return;
  const double rate = throughput_.lap();
  std::string line = fmt::format(
      "Epoch {} | Step {} | Train Loss {:.6f} | lr {:.3e} | grad norm {:.4f} | {} tok/s", epoch + 1,
      step_, last_loss_, optimizer_.learning_rate(), output.grad_norm.item<float>(),
      short_number(rate));
  if (scaler_.enabled()) line += fmt::format(" | loss scale {}", scaler_.state().scale);
  if (output.found_inf && output.found_inf->item<float>() != 0.0F)
    line += " | gradients overflowed: update skipped";
  log_.info(line);
}

void Trainer::run_evaluation() {
  const auto windows = dataset_.evaluation();
  if (windows.size() == 0) return;
  last_eval_ =
      evaluate(model_, windows, config_.trainer.batch_size, group_, plan_.device, amp_dtype_);
  evaluated_step_ = step_;
  if (group_.is_main()) {
    const int64_t epoch = cursor_.position == 0 ? cursor_.epoch : cursor_.epoch + 1;
    log_.info(fmt::format("Epoch {} | Step {} | Eval Loss {:.6f} | {} tokens", epoch, step_,
                          last_eval_->loss, last_eval_->tokens));
  }
}

SnapshotMeta Trainer::snapshot_meta() const {
  SnapshotMeta meta;
  meta.step = step_;
  meta.cursor = cursor_;
  meta.optimizer_step = optimizer_.step_count().item<double>();
  meta.grad_scaler = scaler_.state();
  meta.vocabulary = dataset_.vocabulary().characters();
  meta.config_json = config_to_json(config_);
  meta.data_sha256 = dataset_.sha256();
  meta.micro_batches_per_step = config_.trainer.grad_accumulation_steps * group_.size();
  meta.world_size = group_.size();
  return meta;
}

NamedTensors Trainer::snapshot_tensors() {
  NamedTensors tensors;
  for (const auto& p : optimizer_.parameters())
    tensors.emplace_back("model." + p.name, p.parameter);
  for (const auto& p : optimizer_.parameters()) {
    tensors.emplace_back("optimizer." + p.name + ".exp_avg", p.exp_avg);
    tensors.emplace_back("optimizer." + p.name + ".exp_avg_sq", p.exp_avg_sq);
  }
  // The generators as the next step's first micro-batch will find them: the same for any number of
  // ranks.
  seed_generator(plan_.device, dropout_seed(as_seed(config_), step_, 0));
  const std::string device = plan_.device.is_cuda() ? "cuda" : "cpu";
  tensors.emplace_back("generator." + device, default_generator(plan_.device).get_state());
  return tensors;
}

void Trainer::save() {
  saved_step_ = step_;
  if (!group_.is_main()) return;
  const auto start = Throughput::Clock::now();
  const auto tensors = snapshot_tensors();
  save_snapshot(config_.trainer.snapshot_path, snapshot_meta(), tensors, keep_previous_);
  keep_previous_ = true;
  std::error_code ignored;
  const auto bytes = std::filesystem::file_size(config_.trainer.snapshot_path, ignored);
  log_.info(fmt::format("Snapshot saved at epoch {}, step {}: {} ({} MB, {:.2f} s)", cursor_.epoch,
                        step_, config_.trainer.snapshot_path, (bytes + 500'000) / 1'000'000,
                        std::chrono::duration<double>(Throughput::Clock::now() - start).count()));
}

void Trainer::log_start() const {
  const auto& c = config_.trainer;
  const int64_t per_step = sampler_.global_batch() * config_.data.block_size;
  log_.info(fmt::format("Model: {} layers, {} heads, {} channels; number of parameters: {} ({})",
                        config_.gpt.n_layer, config_.gpt.n_head, config_.gpt.n_embd,
                        short_number(static_cast<double>(model_->parameter_count())),
                        model_->parameter_count()));
  log_.info(fmt::format(
      "Data: {}: {} characters, {} unique; {} training samples, {} evaluation tokens",
      config_.data.path, dataset_.tokens(), dataset_.vocabulary().size(),
      dataset_.training().size(),
      std::max<int64_t>(0, static_cast<int64_t>(dataset_.evaluation().tokens.size()) - 1)));
  log_.info(
      fmt::format("Batch: {} per rank x {} micro-batches x {} ranks = {} samples, {} tokens per "
                  "step; {} steps per epoch",
                  c.batch_size, c.grad_accumulation_steps, group_.size(), sampler_.global_batch(),
                  per_step, sampler_.steps_per_epoch()));
  log_.info(
      fmt::format("Device: {}, backend {}, precision {}, {} threads per rank", plan_.device.str(),
                  group_.c10d() ? plan_.backend_name() : "none (one process)",
                  amp_dtype_ ? std::string(c10::toString(*amp_dtype_)) + " autocast" : "float32",
                  torch::get_num_threads()));
  log_.info(fmt::format("Snapshots: {}", c.snapshot_path));
}

void Trainer::log_end(const FitResult& result) const {
  const auto& c = config_.trainer;
  const std::string state = result.stop_signal == 0
                                ? "Training finished"
                                : fmt::format("Stopped by signal {} and saved", result.stop_signal);
  log_.info(fmt::format("{}: {} steps ({} in all), {} epochs, {:.1f} s, {} tok/s", state,
                        step_ - first_step_, step_, cursor_.epoch,
                        throughput_.seconds_since_start(), short_number(throughput_.average())));
  log_.info(last_eval_ ? fmt::format("Last train loss {:.6f}, eval loss {:.6f}", last_loss_,
                                     last_eval_->loss)
                       : fmt::format("Last train loss {:.6f}", last_loss_));
  log_.info(fmt::format("Snapshot: {}; log: {}", c.snapshot_path, config_.hydra.log_file()));
  log_.info(result.stop_signal == 0
                ? fmt::format("Next: trainer generate --snapshot {} --prompt TEXT", c.snapshot_path)
                : std::string("Next: the same command goes on from the snapshot"));
}

}  // namespace ddp::train
