#include "trainer/metrics/text.h"

#include <fmt/format.h>

namespace ddp::train {

std::string short_number(double value) {
  constexpr double kKilo = 1e3;
  constexpr double kMega = 1e6;
  constexpr double kGiga = 1e9;
  if (value >= kGiga) return fmt::format("{:.2f}G", value / kGiga);
  if (value >= kMega) return fmt::format("{:.2f}M", value / kMega);
  if (value >= kKilo) return fmt::format("{:.2f}k", value / kKilo);
  return fmt::format("{:.0f}", value);
}

std::string in_bytes(int64_t bytes) {
  if (bytes < 0) return "more than 9e18B";  // the sum went beyond int64
  return short_number(static_cast<double>(bytes)) + "B";
}

std::string counted(int64_t count, std::string_view word) {
  const char* plural = word.ends_with("tch") ? "es" : "s";
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : plural);
}

}  // namespace ddp::train
