// Counts of everything that reached the fake device, and the report that tests assert on.
#pragma once

#include <cstdint>
#include <string>

namespace fake_cuda {

/// Adds one call of `bytes` to the counter `name`. From any thread.
void count(const std::string& name, uint64_t bytes = 0);

/// Adds one launch of the kernel `name`.
void count_launch(const std::string& name);
/// Adds one run of it without a launch: in a graph.
void count_kernel(const std::string& name);

/// Adds one call that made the host wait for the device, with its call site if those are recorded:
/// names of functions, and file and line in the program if it was built with -g1.
void count_host_sync(const char* what);

/// Prints to standard error with FAKECUDA_TRACE=1.
void trace(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// One JSON object on one line:
///   {"pid", "rank", "launches", "host_syncs", "sync_sites": {site: n}, "h2d": {"calls", "bytes"},
///    "d2h": ..., "d2d": ..., "pageable": ..., "peak_bytes", "used_bytes", "alloc_calls",
///    "nccl": {"all_reduce": {"calls", "bytes"}, ...}, "missing": {name: n},
///    "kernels": {name: n}, "operators": {name: {"calls", "bytes"}}, "flops": {name: ...},
///    "counters": {name: {"calls", "bytes"}}}
/// "operators" and "flops" with FAKECUDA_ACCOUNT=1; the FLOPs are in "bytes".
/// "nccl" always has every collective; bytes are those of the tensor on this rank.
std::string ledger_json();

/// Appends the report to FAKECUDA_REPORT in one write. Called when the process ends by exit() or
/// _exit(); a killed process leaves none.
void write_ledger();

}  // namespace fake_cuda
