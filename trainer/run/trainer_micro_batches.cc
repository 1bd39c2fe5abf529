// The micro-batches of a step: forward and backward passes, launched one by one or as a graph.
#include <ATen/record_function.h>

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/run/trainer.h"
#include "trainer/run/without_copies.h"
#include "trainer/runtime/seed.h"

namespace ddp::train {
namespace {

void seed_generator(torch::Device device, uint64_t seed) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace

uint64_t Trainer::dropout_seed_of(int64_t micro) const {
  return dropout_seed(static_cast<uint64_t>(config_.trainer.seed), step_,
                      micro * data_.size() + data_.rank());
}

void Trainer::seed_dropout(int64_t micro) { seed_generator(plan_.device, dropout_seed_of(micro)); }

torch::Tensor Trainer::mean_loss(const Batch& batch) {
  RECORD_USER_SCOPE("forward");
  const Autocast autocast(plan_.device.type(), amp_dtype_);
  const WithoutCopies no_copies(*sync_);
  try {
    return task_.loss(batch);
  } catch (...) {
    sync_->end_inference();
    throw;
  }
}

MicroBatchLoss Trainer::run_micro_batch(DataLoader& loader, RunMonitor& monitor, int64_t micro,
                                        bool last) {
  monitor.enter(Phase::kData);
  Batch batch = loader.next();
  const bool ruined = monitor.faults().plans(FaultKind::kNan, step_ + 1);
  if (!ruined && graphs_.takes(batch)) return run_graph(batch, monitor, micro);
  zero_gradients();
  batch = batch.to(plan_.device);
  monitor.enter(Phase::kForward);
  seed_dropout(micro);
  sync_->begin_micro_batch(last);
  MicroBatchLoss loss{mean_loss(batch), batch.target_count};
  if (ruined) loss.mean = loss.mean * std::nan("");
  const auto scaled = scaler_.scale(loss_weights_.for_backward(loss));
  const bool reduces = last || sync_->reduces_every_micro_batch();
  monitor.enter(Phase::kBackward, reduces ? sync_->collective_name() : "");
  RECORD_USER_SCOPE("backward");
  sync_->backward(scaled);
  return {loss.mean.detach(), loss.targets};
}

// The gradients of one rank are those of all: nothing to communicate.
MicroBatchLoss Trainer::run_graph(const Batch& batch, RunMonitor& monitor, int64_t micro) {
  monitor.enter(Phase::kForward);
  monitor.enter(Phase::kBackward);
  const auto passes = [this](const Batch& inputs) {
    const MicroBatchLoss loss{mean_loss(inputs), inputs.target_count};
    RECORD_USER_SCOPE("backward");
    scaler_.scale(loss_weights_.for_backward(loss)).backward();
    return loss.mean.detach();
  };
  if (!graphs_.makes_gradients()) zero_gradients();
  std::vector<torch::Tensor> parameters;
  for (const Parameter& parameter : optimizer_->parameters())
    parameters.push_back(parameter.tensor);
  return {graphs_.run(batch, dropout_seed_of(micro), parameters, passes), batch.target_count};
}

void Trainer::zero_gradients() {
  if (!std::exchange(gradients_are_ready_, true)) optimizer_->zero_grad();
}

std::optional<std::vector<MicroBatchLoss>> Trainer::run_micro_batches(
    DataLoader& loader, RunMonitor& monitor, const std::function<bool()>& gives_up) {
  std::vector<MicroBatchLoss> losses;
  const int64_t of_every_rank = batch_plan_.of_rank(data_.size() - 1, data_.size());
  for (int64_t micro = 0; micro < own_micro_batches_; ++micro) {
    if (gives_up && micro > 0 && micro < of_every_rank && gives_up()) return std::nullopt;
    losses.push_back(
        run_micro_batch(loader, monitor, micro, /*last=*/micro + 1 == own_micro_batches_));
  }
  const int64_t most = batch_plan_.of_rank(0, data_.size());
  if (sync_->reduces_every_micro_batch() && own_micro_batches_ < most) {
    monitor.enter(Phase::kBackward, sync_->collective_name());
    sync_->skip_micro_batch([this] { return task_.smallest_loss(); });
  }
  return losses;
}

}  // namespace ddp::train
