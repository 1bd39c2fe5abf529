// The files of an exported folder.
#pragma once

#include <string>
#include <vector>

#include "trainer/optim/optimizer.h"

namespace ddp::train {

/// Both publish by rename. Throw RunError.
void write_text(const std::string& path, const std::string& text);
/// float32, as safetensors of Python reads them.
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& weights);

}  // namespace ddp::train
