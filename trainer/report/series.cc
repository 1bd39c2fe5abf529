#include "trainer/report/series.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

namespace ddp::train {
namespace {

static_assert(std::endian::native == std::endian::little, "values are packed as they lie");

/// RFC 4648, section 4.
std::string base64(const std::string& bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve(bytes.size() * 4 / 3 + 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      text += i + k < bytes.size() + 1 ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

/// Points of [begin, end) that show the stretch: least, greatest, and one that is not finite.
void take_extremes(const Series& series, std::size_t begin, std::size_t end,
                   std::set<std::size_t>& taken) {
  std::size_t least = begin, greatest = begin;
  for (std::size_t i = begin; i < end; ++i) {
    if (!std::isfinite(series.values[i])) {
      taken.insert(i);
      return;
    }
    if (series.values[i] < series.values[least]) least = i;
    if (series.values[i] > series.values[greatest]) greatest = i;
  }
  taken.insert(least);
  taken.insert(greatest);
}

}  // namespace

void Series::add(int64_t step, double value) {
  if (!steps.empty() && step < steps.back()) return;
  steps.push_back(step);
  values.push_back(value);
}

Series thinned(const Series& series, std::size_t most) {
  constexpr std::size_t kLeast = 4;
  most = std::max(most, kLeast);
  if (series.size() <= most) return series;
  std::set<std::size_t> taken = {0, series.size() - 1};
  const std::size_t stretches = (most - 2) / 2;
  for (std::size_t k = 0; k < stretches; ++k)
    take_extremes(series, series.size() * k / stretches, series.size() * (k + 1) / stretches,
                  taken);
  Series thin;
  for (const std::size_t i : taken) thin.add(series.steps[i], series.values[i]);
  return thin;
}

std::string packed_steps(const Series& series) {
  std::string bytes;
  int64_t before = 0;
  for (const int64_t step : series.steps) {
    auto delta = static_cast<uint64_t>(step - before);
    for (; delta >= 0x80; delta >>= 7) bytes += static_cast<char>(delta | 0x80);
    bytes += static_cast<char>(delta);
    before = step;
  }
  return base64(bytes);
}

std::string packed_values(const Series& series) {
  std::string bytes;
  for (const double value : series.values) {
    const auto single = static_cast<float>(value);
    char raw[sizeof single];
    std::memcpy(raw, &single, sizeof single);
    bytes.append(raw, sizeof single);
  }
  return base64(bytes);
}

std::size_t fair_size(std::vector<std::size_t> sizes, std::size_t budget) {
  std::sort(sizes.begin(), sizes.end());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::size_t share = budget / (sizes.size() - i);
    if (sizes[i] > share) return share;
    budget -= sizes[i];
  }
  return sizes.empty() ? budget : sizes.back();
}

}  // namespace ddp::train
