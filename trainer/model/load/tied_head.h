// Whether a folder's weights follow tie_word_embeddings of its config.json. Does not use LibTorch.
#pragma once

#include <string>

#include "trainer/model/load/pretrained_layout.h"

namespace ddp::train {

/// Returns the warning that the folder's output layer is not tied, as its weights hold one that
/// differs from the table of tokens: transformers keeps both then, whatever config.json has. ""
/// where they hold one of the two, equal ones or none.
std::string own_head_note(const std::string& folder, const PretrainedLayout& layout);

}  // namespace ddp::train
