// The CausalArchitecture of the Llama family.
#pragma once

#include <memory>

#include "trainer/model/causal_architecture.h"

namespace ddp::train {

std::unique_ptr<const CausalArchitecture> llama_architecture();

}  // namespace ddp::train
