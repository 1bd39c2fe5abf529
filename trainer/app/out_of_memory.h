// Memory that there is not: an error that another start would meet again, said with numbers.
#pragma once

#include <exception>
#include <string>

#include "trainer/app/plan/memory_estimate.h"
#include "trainer/config/config.h"

namespace ddp::train {

/// Whether an allocation failed: std::bad_alloc, a thread without a stack, torch's OutOfMemoryError
/// of a GPU, or what torch's allocator for the CPU throws.
bool is_out_of_memory(const std::exception& error);

/// What was asked for ("1.25GB", "20.00 GiB"), or "" when the error does not say.
std::string memory_asked_for(const std::string& error_text);

/// One line: what was asked for, what a rank takes and for what, what is free now, which keys make
/// it less.
std::string out_of_memory_text(const Config& config, const MemoryModel& model,
                               const ComputePlace& place, int device_index,
                               const std::exception& error);

}  // namespace ddp::train
