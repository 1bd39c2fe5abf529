// The entry point of libtrainer_kernels.so.
#pragma once

namespace ddp::train {

/// The symbol exported by the library.
inline constexpr const char* kLoadOperators = "ddp_trainer_load_operators";

/// Compiles the kernels for the current device and registers them as ddp_run's operators for CUDA.
/// Returns why that was not possible, one line, or "", valid until the next call. `folder` keeps
/// what was compiled; "": nothing is kept. In C's types, so that Python can call it, too
/// (scripts/gpu/kernel_numbers.py).
using LoadOperators = const char* (*)(const char* folder);

}  // namespace ddp::train
