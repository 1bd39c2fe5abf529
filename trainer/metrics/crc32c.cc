#include "trainer/metrics/crc32c.h"

#include <array>

namespace ddp::train {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  constexpr uint32_t kReflected = 0x82F63B78;
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kReflected : 0);
    table[i] = value;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = make_table();

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xFF];
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  constexpr uint32_t kMask = 0xA282EAD8;
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + kMask;
}

}  // namespace ddp::train
