#include "trainer/task/causal_cost.h"

#include "trainer/model/cost/tensor_cost.h"
#include "trainer/model/lora.h"
#include "trainer/model/model_division.h"

namespace ddp::train {

int64_t CausalCost::units_per_sample() const { return rows_per_sample() * config_.data.block_size; }

bool CausalCost::of_pairs() const { return config_.task == TaskKind::kPreference; }

std::vector<ParameterPart> CausalCost::parameter_parts() const {
  const WeightsLayout weights = architecture_.layout(config_, vocab_size_);
  auto parts = parts_of(weights);
  if (config_.adapted()) parts.push_back({"adapters", count_of(adapter_shapes(config_, weights))});
  return parts;
}

double CausalCost::flops_per_unit() const {
  return config_.adapted() ? flops_per_token_with_adapters(config_, architecture_, vocab_size_)
                           : architecture_.flops_per_token(config_, vocab_size_);
}

WeightsLayout CausalCost::layout() const {
  return of_pairs() ? WeightsLayout{} : architecture_.layout(config_, vocab_size_);
}

void CausalCost::check_division(const Config& config) const {
  train::check_division(config, architecture_, vocab_size_);
}

std::vector<MemoryItem> CausalCost::memory_items(const Config& config,
                                                 const ComputePlace& place) const {
  Config rows = config;
  rows.trainer.batch_size *= rows_per_sample();
  return architecture_.memory_items(rows, vocab_size_, place);
}

}  // namespace ddp::train
