#include "trainer/app/out_of_memory.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <charconv>
#include <new>
#include <system_error>

#include "trainer/config/config.h"
#include "trainer/metrics/text.h"
#include "trainer/parallel/device/device_share.h"

namespace ddp::train {
namespace {

constexpr std::string_view kCpuAllocator = "you tried to allocate ";
constexpr std::string_view kCudaAllocator = "Tried to allocate ";

/// The text after `mark`, up to `end`; "" without the mark.
std::string_view behind(std::string_view text, std::string_view mark, std::string_view end) {
  const auto at = text.find(mark);
  if (at == std::string_view::npos) return {};
  const auto rest = text.substr(at + mark.size());
  return rest.substr(0, rest.find(end));
}

/// "weights 1.2MB, gradients 1.2MB"
std::string items_text(const MemoryEstimate& estimate) {
  std::string text;
  for (const MemoryItem& item : estimate.items) {
    if (!counts(item, estimate.cuda)) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", item.name, in_bytes(item.bytes));
  }
  return text;
}

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    return system->code() == std::errc::not_enough_memory ||
           system->code() == std::errc::resource_unavailable_try_again;  // a thread's stack
  }
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (dynamic_cast<const c10::Error*>(&error) == nullptr) return false;
  const std::string_view text = error.what();
  if (text.starts_with("CUDA error: out of memory")) return true;  // not of torch's allocator
  return text.find("DefaultCPUAllocator: ") != std::string_view::npos &&
         text.find(kCpuAllocator) != std::string_view::npos;
}

std::string memory_asked_for(const std::string& error_text) {
  const std::string_view digits = behind(error_text, kCpuAllocator, " ");
  int64_t bytes = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
  if (!digits.empty() && parsed.ec == std::errc()) return in_bytes(bytes);
  return std::string(behind(error_text, kCudaAllocator, ". "));
}

std::string out_of_memory_text(const Config& config, const TaskCost& task,
                               const ComputePlace& place, int device_index,
                               const std::exception& error) {
  const std::string asked = memory_asked_for(error.what());
  const MemoryEstimate estimate = estimate_memory(config, task, place, device_index);
  const auto device = place.cuda
                          ? torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(device_index))
                          : torch::Device(torch::kCPU);
  const std::string limit = memory_limit_note(config.distributed, device);
  return fmt::format(
      "out of memory on the {}{}{}; a rank takes about {}{}: {}; {}to take less, {}; trainer "
      "estimate shows this beforehand",
      place.cuda ? "GPU" : "CPU", limit,
      asked.empty() ? "" : fmt::format(": {} more were requested", asked),
      in_bytes(estimate.device_bytes),
      limit.empty() ? fmt::format(", {} are free", in_bytes(estimate.available_bytes)) : "",
      items_text(estimate), limit.empty() ? "" : "raise the limit, or, ",
      memory_advice(config, task, place, device_index));
}

}  // namespace ddp::train
