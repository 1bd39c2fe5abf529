#include "trainer/model/blocks/token_context.h"

namespace ddp::train {
namespace {

torch::Tensor slots_of(const torch::Tensor& idx_BT) {
  return torch::arange(idx_BT.size(1), torch::TensorOptions(torch::kInt64).device(idx_BT.device()));
}

}  // namespace

torch::Tensor TokenContext::positions(const torch::Tensor& idx_BT) const {
  if (cache != nullptr) return cache->positions(idx_BT.size(1), idx_BT.device());
  return positions_BT.defined() ? positions_BT : slots_of(idx_BT);
}

// Two positions are of one document when it starts at the same place for both. A document's
// positions continue those of the virtual tokens, which start where the first document does.
torch::Tensor TokenContext::mask(const torch::Tensor& idx_BT, int64_t window) const {
  if (cache != nullptr) return cache->mask(idx_BT.size(1), idx_BT.device(), window);
  const bool hides = window > 0 && idx_BT.size(1) > window;
  if (!positions_BT.defined() && !hides) return {};
  const auto slots_T = slots_of(idx_BT);
  auto visible_TT = slots_T.unsqueeze(0) <= slots_T.unsqueeze(1);
  if (hides) visible_TT = visible_TT & (slots_T.unsqueeze(0) > slots_T.unsqueeze(1) - window);
  if (!positions_BT.defined()) return visible_TT.unsqueeze(0).unsqueeze(0);
  const auto starts_BT = slots_T - positions_BT;
  auto same_BTT = starts_BT.unsqueeze(2) == starts_BT.unsqueeze(1);
  if (prompt > 0) same_BTT = same_BTT | (slots_T < prompt);
  return (same_BTT & visible_TT).unsqueeze(1);
}

}  // namespace ddp::train
