// What ranks check of layers whose weights they divide.
#pragma once

#include <torch/torch.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/trainer/parallel/sharded_layers.h"
#include "trainer/parallel/collectives/process_group.h"

namespace ddp::train::test {

inline torch::Tensor input_of(int rank, bool requires_grad = false) {
  const auto x = (torch::arange(5 * Layer::kWidth, torch::kFloat32) * 0.37 * (rank + 1)).sin();
  return x.view({5, -1}).requires_grad_(requires_grad);
}

/// The gradients of every rank's input, divided and added in the order of the ranks, twice.
inline std::vector<torch::Tensor> summed_gradients(int ranks) {
  Layers whole(0);
  const auto parameters = whole.parameters();
  std::vector<torch::Tensor> sums;
  for (const auto& each : parameters) sums.push_back(torch::zeros_like(each.tensor.detach()));
  for (int pass = 0; pass < 2; ++pass) {
    for (int rank = 0; rank < ranks; ++rank) {
      whole.loss(input_of(rank)).backward();
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        sums[i].add_(parameters[i].tensor.grad().div(ranks));
        parameters[i].tensor.mutable_grad().reset();
      }
    }
  }
  return sums;
}

/// What went wrong, or "".
inline std::string wrong_in_divided_layers(ProcessGroup& group) {
  using Counts = std::vector<int>;
  const Counts none = {0, 0, 0, 0}, root_alone = {0, 0, 0, 2};
  Layers model(group.rank());  // rank 0's weights count
  const auto expected_loss = Layers(0).loss(input_of(group.rank()));
  const auto sync = model.divided(group);
  if (model.in_memory() != none) return "weights in memory before the first pass";
  for (int pass = 0; pass < 2; ++pass) {
    sync->begin_micro_batch(/*last=*/pass == 1);
    const auto loss = model.loss(input_of(group.rank(), /*requires_grad=*/pass == 1));
    if (!torch::equal(loss, expected_loss)) return "another loss";
    if (model.in_memory() != root_alone) return "weights in memory after a forward pass";
    sync->backward(loss);
    if (model.in_memory() != none) return "weights in memory after a backward pass";
  }
  const auto expected = summed_gradients(group.size());
  for (const auto& own : sync->own()) {
    if (!torch::equal(own.gradient, sync->part_of(expected[own.shard.parameter], own.shard)))
      return "another gradient";
  }
  {
    const torch::NoGradGuard no_grad;
    sync->begin_inference();
    if (!torch::equal(model.loss(input_of(group.rank())), expected_loss))
      return "another loss without gradients";
    sync->end_inference();
  }
  if (model.in_memory() != none) return "weights in memory after inference";
  model.layers[1]->throws = true;
  sync->begin_micro_batch(/*last=*/true);
  try {
    model.loss(input_of(group.rank()));
    return "no exception";
  } catch (const std::runtime_error&) {
  }
  if (model.in_memory() != none) return "weights in memory after an exception";
  model.layers[1]->throws = false;
  group.barrier();
  sync->begin_micro_batch(/*last=*/true);
  const auto failing = model.loss(input_of(group.rank()));
  failing.register_hook([](const torch::Tensor&) { throw std::runtime_error("a hook failed"); });
  try {
    sync->backward(failing);
    return "no exception";
  } catch (const std::runtime_error&) {
  }
  return model.in_memory() == none ? "" : "weights in memory after an exception in backward";
}

}  // namespace ddp::train::test
