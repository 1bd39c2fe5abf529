#include "trainer/data/tokens/mixed_windows.h"

#include <fmt/format.h>

#include <utility>

#include "trainer/runtime/files/sha256.h"

namespace ddp::train {
namespace {

WeightedOrder order_of(const std::vector<MixedWindows::Part>& parts, uint64_t seed) {
  std::vector<WeightedOrder::Part> sizes;
  for (const auto& part : parts) sizes.push_back({part.windows->size(), part.weight});
  return {std::move(sizes), seed};
}

std::string digest_of(const std::vector<std::string>& lines) {
  Sha256 sum;
  for (const std::string& line : lines) sum.update(line + "\n");
  return sum.hex();
}

}  // namespace

MixedWindows::MixedWindows(std::vector<Part> parts, uint64_t seed)
    : parts_(std::move(parts)), order_(order_of(parts_, seed)) {
  std::vector<std::string> lines;
  for (const Part& part : parts_)
    lines.push_back(fmt::format("{} {}", part.windows->fingerprint(), part.weight));
  fingerprint_ = digest_of(lines);
}

Batch MixedWindows::collate(const BatchRequest& request) const {
  WindowRows rows = parts_.front().windows->rows(request);
  for (std::size_t row = 0; row < request.samples.size(); ++row) {
    const auto place = order_.at(request.samples[row], request.epoch);
    parts_[place.part].windows->fill(rows, row, place.sample);
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
