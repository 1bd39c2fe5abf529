// torchelastic's error file: reports to the launcher why a worker failed.
#pragma once

#include <string>

namespace ddp::train {

/// Writes {"message":{"message","errorCode","extraInfo":{"py_callstack","timestamp"}}} to the file
/// TORCHELASTIC_ERROR_FILE, by rename; does nothing if that is unset or empty. Never
/// throws.
void write_error_file(const std::string& message, int exit_code) noexcept;

}  // namespace ddp::train
