// One micro-batch of a rank: tensors by name, and the number of targets of its mean loss.
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
/// int64 [B, T]: rows of several documents, each position counted from its document's start.
/// Attention does not cross documents. Without it each row is one document.
inline constexpr const char* kPositions = "positions";
inline constexpr const char* kTargetPositions = "target_positions";  ///< int64 [M], below B * T.

struct Batch {
  std::map<std::string, torch::Tensor, std::less<>> tensors;
  /// The batch's weight among others: its number of targets without ignored ones. Counted by the
  /// source, as reading it from a GPU would make the host wait in every step. A batch with 0 passes
  /// through the model and adds nothing.
  int64_t target_count = 0;

  /// Returns the tensor `name`. Throws c10::Error that lists the existing names.
  const torch::Tensor& operator[](std::string_view name) const;
  /// As operator[], but undefined if there is none.
  torch::Tensor find(std::string_view name) const;
  /// Returns all tensors on `device`; copies from page-locked memory are asynchronous.
  Batch to(torch::Device device) const;
};

}  // namespace ddp::train
