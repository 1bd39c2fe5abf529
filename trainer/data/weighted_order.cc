#include "trainer/data/weighted_order.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/data/distributed_sampler.h"
#include "trainer/runtime/seed.h"

namespace ddp::train {
namespace {

/// Cut at rounded shares of the whole, so that each part is right to one sample.
std::vector<int64_t> starts_by_weight(const std::vector<WeightedOrder::Part>& parts) {
  int64_t size = 0;
  double sum = 0.0;
  for (const auto& part : parts) {
    size += part.size;
    sum += part.weight;
  }
  std::vector<int64_t> starts = {0};
  double before = 0.0;
  for (const auto& part : parts) {
    before += part.weight;
    starts.push_back(std::llround(static_cast<double>(size) * (before / sum)));
  }
  starts.back() = size;
  return starts;
}

}  // namespace

std::size_t part_of(const std::vector<int64_t>& starts, int64_t i) {
  const auto next = std::upper_bound(starts.begin(), starts.end(), i);
  return static_cast<std::size_t>(next - starts.begin()) - 1;
}

WeightedOrder::WeightedOrder(std::vector<Part> parts, uint64_t seed)
    : parts_(std::move(parts)), starts_(starts_by_weight(parts_)), seed_(seed) {}

WeightedOrder::Place WeightedOrder::at(int64_t sample, int64_t epoch) const {
  const std::size_t part = part_of(starts_, sample);
  // The number of samples that were drawn from the source before, in all epochs.
  const int64_t draw = epoch * samples_of(part) + sample - starts_[part];
  const int64_t size = parts_[part].size;
  const uint64_t of_part = data_order_seed(seed_, static_cast<int64_t>(part));
  return {part, Permutation(size, data_order_seed(of_part, draw / size))(draw % size)};
}

}  // namespace ddp::train
