// Python's torch.save format: a zip archive with a pickle and the tensors' bytes.
#pragma once

#include <string>
#include <vector>

#include "trainer/optim/optimizer.h"

namespace ddp::train {

/// Writes a dict of names and CPU tensors that torch.load(path, weights_only=True) reads. Throws
/// RunError.
void write_torch_file(const std::string& path, const std::vector<NamedTensor>& tensors);

}  // namespace ddp::train
