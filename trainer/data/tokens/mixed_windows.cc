#include "trainer/data/tokens/mixed_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trainer/data/distributed_sampler.h"
#include "trainer/runtime/files/sha256.h"
#include "trainer/runtime/seed.h"

namespace ddp::train {
namespace {

/// Where sample `i` belongs, by the parts' starts.
std::size_t part_of(const std::vector<int64_t>& starts, int64_t i) {
  const auto next = std::upper_bound(starts.begin(), starts.end(), i);
  return static_cast<std::size_t>(next - starts.begin()) - 1;
}

/// Cut at rounded shares of the whole, so that each part is right to one sample.
std::vector<int64_t> starts_by_weight(const std::vector<MixedWindows::Part>& parts) {
  int64_t size = 0;
  double sum = 0.0;
  for (const auto& part : parts) {
    size += part.windows->size();
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

std::string digest_of(const std::vector<std::string>& lines) {
  Sha256 sum;
  for (const std::string& line : lines) sum.update(line + "\n");
  return sum.hex();
}

}  // namespace

MixedWindows::MixedWindows(std::vector<Part> parts, uint64_t seed)
    : parts_(std::move(parts)), starts_(starts_by_weight(parts_)), seed_(seed) {
  std::vector<std::string> lines;
  for (const Part& part : parts_)
    lines.push_back(fmt::format("{} {}", part.windows->fingerprint(), part.weight));
  fingerprint_ = digest_of(lines);
}

/// `draw`: number of windows that were drawn from the source before, in all epochs.
int64_t MixedWindows::window_of(std::size_t part, int64_t draw) const {
  const int64_t windows = parts_[part].windows->size();
  const int64_t pass = draw / windows;
  const uint64_t of_part = data_order_seed(seed_, static_cast<int64_t>(part));
  return Permutation(windows, data_order_seed(of_part, pass))(draw % windows);
}

Batch MixedWindows::collate(const BatchRequest& request) const {
  WindowRows rows = parts_.front().windows->rows(request);
  for (std::size_t row = 0; row < request.samples.size(); ++row) {
    const int64_t sample = request.samples[row];
    const std::size_t part = part_of(starts_, sample);
    const int64_t draw = request.epoch * samples_of(part) + sample - starts_[part];
    parts_[part].windows->fill(rows, row, window_of(part, draw));
  }
  return rows.batch();
}

JoinedWindows::JoinedWindows(std::vector<const EvaluationWindows*> parts)
    : parts_(std::move(parts)), starts_({0}) {
  std::vector<std::string> lines;
  for (const EvaluationWindows* part : parts_) {
    starts_.push_back(starts_.back() + part->size());
    lines.push_back(part->fingerprint());
  }
  fingerprint_ = digest_of(lines);
}

Batch JoinedWindows::collate(const BatchRequest& request) const {
  WindowRows rows = parts_.front()->rows(request);
  for (std::size_t row = 0; row < request.samples.size(); ++row) {
    const std::size_t part = part_of(starts_, request.samples[row]);
    parts_[part]->fill(rows, row, request.samples[row] - starts_[part]);
  }
  return rows.batch();
}

}  // namespace ddp::train
