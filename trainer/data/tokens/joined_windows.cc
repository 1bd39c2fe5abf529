#include "trainer/data/tokens/joined_windows.h"

#include <utility>

#include "trainer/data/weighted_order.h"
#include "trainer/runtime/files/sha256.h"

namespace ddp::train {

JoinedWindows::JoinedWindows(std::vector<const EvaluationWindows*> parts)
    : parts_(std::move(parts)), starts_({0}) {
  Sha256 sum;
  for (const EvaluationWindows* part : parts_) {
    starts_.push_back(starts_.back() + part->size());
    sum.update(part->fingerprint() + "\n");
  }
  fingerprint_ = sum.hex();
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
