// The weights in a folder of a transformers model. Does not use LibTorch.
#pragma once

#include <set>
#include <string>

#include "trainer/model/load/pretrained_layout.h"

namespace ddp::train {

/// The safetensors files of the folder's model: one, or those that its index lists. None if it has
/// neither.
std::set<std::string> weight_files(const std::string& folder, const PretrainedLayout& layout);

/// Returns the warning that the folder's output layer is not tied, as its weights hold one that
/// differs from the table of tokens: transformers keeps both then, whatever config.json has. ""
/// where they hold one of the two, equal ones or none.
std::string own_head_note(const std::string& folder, const PretrainedLayout& layout);

}  // namespace ddp::train
