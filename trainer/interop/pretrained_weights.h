// Weights from the folder of a GPT-2: model.safetensors, or the shards that
// model.safetensors.index.json lists.
#pragma once

#include <string>
#include <vector>

#include "trainer/optim/optimizer.h"

namespace ddp::train {

/// Copies the folder's weights into `parameters`, a GPT's by name; position embeddings beyond
/// theirs are left out. float32, float16 and bfloat16 are read. Throws UserError that lists each
/// tensor that is missing, has another shape or is not known; nothing has been copied then.
void load_pretrained(const std::string& folder, const std::vector<NamedTensor>& parameters);

}  // namespace ddp::train
