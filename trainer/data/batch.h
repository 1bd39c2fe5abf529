// One micro-batch of a rank: tensors by name, and how many targets its loss is a mean over.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace ddp::train {

// Names that tasks share; a source may add others for its own task. B rows of T positions.
inline constexpr const char* kInputs = "inputs";    ///< [B, ...]: tokens, pixels.
inline constexpr const char* kTargets = "targets";  ///< [B], [B, T], or [M] at target_positions.
inline constexpr const char* kAttentionMask = "attention_mask";  ///< bool [B, T]; false: padding.
/// int64 [B, T]: rows of several documents, each position counted from its document's start. The
/// documents do not see each other. Without it each row is one.
inline constexpr const char* kPositions = "positions";
inline constexpr const char* kTargetPositions = "target_positions";  ///< int64 [M], below B * T.

struct Batch {
  std::map<std::string, torch::Tensor, std::less<>> tensors;
  /// What the batch counts for among others: the ignored targets left out. Counted by the source,
  /// as reading it from a GPU would make the host wait in every step. With 0 a batch passes through
  /// the model and adds nothing.
  int64_t target_count = 0;

  /// The tensor called `name`. Throws c10::Error that lists the names there are.
  const torch::Tensor& operator[](std::string_view name) const;
  /// As operator[], but undefined if there is none.
  torch::Tensor find(std::string_view name) const;
  /// All tensors on `device`; page-locked memory is copied without waiting.
  Batch to(torch::Device device) const;
};

}  // namespace ddp::train
