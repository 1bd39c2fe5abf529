// task: what is trained.
#pragma once

#include <string_view>

#include "trainer/config/value_types.h"

namespace ddp::train {

enum class TaskKind {
  kCausalLm,
  kPreference,
  kMaskedLm,
  kTextClassification,
  kImageClassification
};
inline Names names_of(TaskKind) {
  return {"causal_lm", "preference", "masked_lm", "text_classification", "image_classification"};
}
inline std::string_view task_name(TaskKind task) { return name_of(task); }
/// Whether the task trains a causal language model.
inline bool trains_causal_lm(TaskKind task) {
  return task == TaskKind::kCausalLm || task == TaskKind::kPreference;
}

}  // namespace ddp::train
