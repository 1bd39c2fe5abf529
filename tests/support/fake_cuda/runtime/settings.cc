#include "tests/support/fake_cuda/runtime/settings.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace fake_cuda {
namespace {

std::string text_of(const char* name, const char* fallback = "") {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? text : fallback;
}

template <typename Number>
Number number_of(const char* name, Number fallback) {
  const std::string text = text_of(name);
  if (text.empty()) return fallback;
  Number value{};
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && at == end) return value;
  std::fprintf(stderr, "fake CUDA: %s=%s is not a number\n", name, text.c_str());
  std::_Exit(2);
}

Settings read_settings() {
  Settings s;
  s.devices = number_of("FAKECUDA_DEVICES", s.devices);
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  s.memory_bytes = static_cast<std::size_t>(number_of("FAKECUDA_MEMORY_GB", 80.0) * kGiB);
  s.compute_capability = number_of("FAKECUDA_SM", s.compute_capability);
  s.device_name = text_of("FAKECUDA_NAME", "Fake H100 80GB HBM3");
  s.numbers = number_of("FAKECUDA_NUMERICS", 0) != 0;
  s.account = number_of("FAKECUDA_ACCOUNT", 0) != 0;
  s.report = text_of("FAKECUDA_REPORT");
  s.sync_sites = number_of("FAKECUDA_SYNC_SITES", 0) != 0;
  s.trace = number_of("FAKECUDA_TRACE", 0) != 0;
  s.lax = number_of("FAKECUDA_LAX", 0) != 0;
  s.delay_us = number_of<int64_t>("FAKECUDA_DELAY_US", 0);
  s.kernel_us = number_of<int64_t>("FAKECUDA_KERNEL_US", 0);
  s.fault_rank = number_of("FAKECUDA_FAULT_RANK", -1);
  s.out_of_memory_at = number_of<int64_t>("FAKECUDA_OOM_AT", 0);
  s.out_of_memory_lasts = number_of("FAKECUDA_OOM_LASTS", 0) != 0;
  s.illegal_address_at = number_of<int64_t>("FAKECUDA_FAULT_AT", 0);
  s.stuck_kernel = text_of("FAKECUDA_STUCK_KERNEL");
  s.stuck_kernel_at = number_of<int64_t>("FAKECUDA_STUCK_AT", 0);
  s.capture_fails = number_of("FAKECUDA_CAPTURE_FAILS", 0) != 0;
  s.mig = number_of("FAKECUDA_MIG", 0) != 0;
  s.driver_version = number_of("FAKECUDA_DRIVER", s.driver_version);
  return s;
}

/// Index of the device that an entry of CUDA_VISIBLE_DEVICES names, or -1.
int device_named(std::string_view entry) {
  const int count = settings().devices;
  int index = -1;
  const auto [at, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  if (error == std::errc() && at == entry.data() + entry.size()) return index < count ? index : -1;
  for (int i = 0; i < count; ++i) {
    if (!entry.empty() && device_uuid(i).starts_with(entry)) return i;
  }
  return -1;
}

std::vector<int> read_visible() {
  std::vector<int> devices;
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (int i = 0; i < settings().devices; ++i) devices.push_back(i);
    return devices;
  }
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const int index = device_named(rest.substr(0, comma));
    if (index < 0) break;
    devices.push_back(index);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  return devices;
}

/// CUDA shows a process one MIG instance at most.
std::vector<int> visible_to_cuda() {
  auto devices = read_visible();
  if (settings().mig && devices.size() > 1) devices.erase(devices.begin() + 1, devices.end());
  return devices;
}

}  // namespace

bool Settings::faults_apply() const {
  return fault_rank < 0 || std::to_string(fault_rank) == text_of("RANK", "0");
}

// Never destroyed: the ledger is written when the process ends.
const Settings& settings() {
  static const auto* value = new Settings(read_settings());
  return *value;
}

const std::vector<int>& visible_devices() {
  static const auto* value = new std::vector<int>(visible_to_cuda());
  return *value;
}

std::string device_uuid(int index) {
  char text[64];
  std::snprintf(text, sizeof text, "%s-fafafafa-0000-0000-0000-%012x",
                settings().mig ? "MIG" : "GPU", static_cast<unsigned>(index));
  return text;
}

}  // namespace fake_cuda
