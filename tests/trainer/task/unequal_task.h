// A linear regression with missing targets: batches, and so micro-batches and ranks, whose losses
// have unequal weights.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/rows.h"
#include "trainer/run/trainer.h"

namespace ddp::train::test {

inline constexpr int64_t kFeatures = 4;
inline constexpr int64_t kOutputs = 3;

/// Sample i: kFeatures numbers in, kOutputs numbers out, of which i % 4 are missing (NaN); of the
/// last 8 samples all.
class UnequalSamples : public SampleSource {
 public:
  int64_t size() const override { return 48; }
  Batch collate(const BatchRequest& request) const override {
    Rows<float> inputs(request.samples.size(), {kFeatures}, request.pinned);
    Rows<float> outputs(request.samples.size(), {kOutputs}, request.pinned);
    int64_t count = 0;
    for (std::size_t i = 0; i < request.samples.size(); ++i)
      count += fill(request.samples[i], inputs[i], outputs[i]);
    return {{{kInputs, inputs.tensor()}, {kTargets, outputs.tensor()}}, count};
  }
  TargetCount targets() const override { return {kOutputs, /*always=*/false}; }
  const std::string& fingerprint() const override { return name_; }

 private:
  int64_t fill(int64_t index, std::span<float> inputs, std::span<float> outputs) const {
    const int64_t missing = index < size() - 8 ? index % (kOutputs + 1) : kOutputs;
    for (int64_t k = 0; k < kFeatures; ++k)
      inputs[static_cast<std::size_t>(k)] =
          static_cast<float>(std::sin(static_cast<double>(7 * index + k)));
    for (int64_t k = 0; k < kOutputs; ++k)
      outputs[static_cast<std::size_t>(k)] =
          k < missing ? std::numeric_limits<float>::quiet_NaN()
                      : static_cast<float>(std::cos(static_cast<double>(5 * index + k)));
    return kOutputs - missing;
  }

  std::string name_ = "unequal";
};

/// The mean of squared errors over the targets that are there. No evaluation.
class UnequalTask : public Task {
 public:
  const SampleSource& training() const override { return samples_; }
  const SampleSource* evaluation() const override { return nullptr; }
  void build_model(torch::Device /*device*/, std::optional<uint64_t> seed) override {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed.value_or(0));
    const torch::NoGradGuard no_grad;
    layer_->weight.uniform_(-1, 1, generator);
  }
  torch::nn::Module& model() override { return *layer_; }
  std::vector<Parameter> parameters() const override { return {{"weight", layer_->weight}}; }
  torch::Tensor loss(const Batch& batch) override {
    const torch::Tensor& targets = batch[kTargets];
    const auto there = ~targets.isnan();
    const auto errors = (layer_->forward(batch[kInputs]) - targets.nan_to_num()) * there;
    return errors.square().sum() / static_cast<double>(std::max<int64_t>(1, batch.target_count));
  }
  torch::Tensor smallest_loss() override {
    return layer_->forward(torch::zeros({1, kFeatures})).square().sum();
  }
  BatchSums evaluate(const Batch& /*batch*/) override { return {torch::zeros({1}), {}}; }
  int64_t sums() const override { return 1; }
  Metrics metrics(const std::vector<double>& sums) const override { return {{"loss", sums[0]}}; }
  std::vector<std::string> metric_names() const override { return {"loss"}; }
  int64_t units_per_sample() const override { return 1; }
  std::string_view unit() const override { return "samples"; }
  std::map<std::string, std::string> metadata() const override { return {}; }
  void check_resume(const std::map<std::string, std::string>& /*metadata*/,
                    const std::string& /*snapshot*/) const override {}
  std::vector<std::string> describe() const override { return {}; }

 private:
  UnequalSamples samples_;
  torch::nn::Linear layer_{torch::nn::LinearOptions(kFeatures, kOutputs).bias(false)};
};

/// Steps of 12 samples in micro-batches of 2, by plain gradient descent.
inline Config unequal_config() {
  Config config;
  config.trainer.batch_size = 2;
  config.trainer.global_batch_size = 12;
  config.trainer.data_loader_workers = 0;
  config.trainer.grad_norm_clip = 0.0;
  config.optimizer.name = OptimizerName::kSgd;
  config.optimizer.learning_rate = 0.1;
  config.optimizer.weight_decay = 0.0;
  return config;
}

/// Losses of the steps and the weights after them.
struct UnequalRun {
  std::vector<double> losses;
  int64_t without_targets = 0;  ///< Micro-batches of this rank.
  torch::Tensor weights;
};

inline UnequalRun train_unequal(ProcessGroup& group, int steps) {
  const Config config = unequal_config();
  UnequalTask task;
  Mesh mesh(group);
  Trainer trainer(config, {}, mesh, task, std::nullopt, nullptr);
  RunMonitor monitor(config, group.rank(), group.size(), /*on_gpu=*/false);
  const auto loader = trainer.make_loader();
  UnequalRun run;
  for (int i = 0; i < steps; ++i) {
    const StepOutput output = trainer.train_step(*loader, monitor, [] {});
    run.losses.push_back(trainer.global_mean_loss(output));
    for (const auto& loss : output.losses) run.without_targets += loss.targets == 0 ? 1 : 0;
  }
  run.weights = task.parameters().front().tensor.detach().clone();
  return run;
}

}  // namespace ddp::train::test
