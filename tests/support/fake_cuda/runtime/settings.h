// The control surface: every FAKECUDA_* variable, read once per process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fake_cuda {

struct Settings {
  int devices = 1;                         ///< FAKECUDA_DEVICES
  std::size_t memory_bytes = 80ULL << 30;  ///< FAKECUDA_MEMORY_GB, per device
  int compute_capability = 90;             ///< FAKECUDA_SM: 80, 90, 100
  std::string device_name;                 ///< FAKECUDA_NAME
  bool numbers = false;                    ///< FAKECUDA_NUMERICS: operators compute on the host
  bool account = false;                    ///< FAKECUDA_ACCOUNT: bytes and FLOPs by operator
  std::string report;                      ///< FAKECUDA_REPORT: file to append the ledger to
  bool sync_sites = false;                 ///< FAKECUDA_SYNC_SITES: call sites of host waits
  bool trace = false;                      ///< FAKECUDA_TRACE: every call on standard error
  bool lax = false;                        ///< FAKECUDA_LAX: missing functions succeed
  int64_t delay_us = 0;                    ///< FAKECUDA_DELAY_US: before each operation of a stream
  int64_t kernel_us = 0;                   ///< FAKECUDA_KERNEL_US: length of each kernel
  // Faults. They hit every process, or only the rank FAKECUDA_FAULT_RANK.
  int fault_rank = -1;
  int64_t out_of_memory_at = 0;      ///< FAKECUDA_OOM_AT: the n-th cudaMalloc fails
  bool out_of_memory_lasts = false;  ///< FAKECUDA_OOM_LASTS: and all later ones
  int64_t illegal_address_at = 0;    ///< FAKECUDA_FAULT_AT: the n-th launch
  std::string stuck_kernel;          ///< FAKECUDA_STUCK_KERNEL: part of its name; never ends
  int64_t stuck_kernel_at = 0;       ///< FAKECUDA_STUCK_AT: the n-th launch never ends
  bool capture_fails = false;        ///< FAKECUDA_CAPTURE_FAILS: no graph can be captured
  int driver_version = 13020;        ///< FAKECUDA_DRIVER
  bool mig = false;                  ///< FAKECUDA_MIG: the devices are MIG instances

  /// Whether faults apply to this process.
  bool faults_apply() const;
};

/// The process's settings. Ends the process with one line when a variable is not a number.
const Settings& settings();

/// The devices that CUDA_VISIBLE_DEVICES leaves, by index among all of them. As in CUDA, everything
/// after the first entry that names no device is ignored.
const std::vector<int>& visible_devices();

/// Uuid of a device, as in "GPU-<hex>" or "MIG-<hex>"; CUDA_VISIBLE_DEVICES accepts it too.
std::string device_uuid(int index);

}  // namespace fake_cuda
