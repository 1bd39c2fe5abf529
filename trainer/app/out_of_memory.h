// Out-of-memory errors, which would recur after a restart, explained with numbers.
#pragma once

#include <exception>
#include <string>

#include "trainer/app/plan/memory_estimate.h"

namespace ddp::train {

struct Config;

/// Whether an allocation failed: std::bad_alloc, a thread without a stack, torch's OutOfMemoryError
/// of a GPU, or what torch's allocator for the CPU throws.
bool is_out_of_memory(const std::exception& error);

/// Returns the size requested ("1.25GB", "20.00 GiB"), or "" if the error does not contain it.
std::string memory_asked_for(const std::string& error_text);

/// Returns one line: the size requested, a rank's memory and its uses, the free memory, the keys
/// that reduce it.
std::string out_of_memory_text(const Config& config, const TaskCost& task,
                               const ComputePlace& place, int device_index,
                               const std::exception& error);

}  // namespace ddp::train
