// The way into libtrainer_kernels.so.
#pragma once

#include <string>

namespace ddp::train {

/// Symbol that the library exports.
inline constexpr const char* kLoadOperators = "ddp_trainer_load_operators";

/// Compiles the kernels for the current device and registers them as ddp_run's operators for CUDA.
/// Returns why that was not possible, one line, or "". `folder` keeps what was compiled; "": none
/// does.
using LoadOperators = std::string (*)(const std::string& folder);

}  // namespace ddp::train
