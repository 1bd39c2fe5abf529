// CRC-32C (Castagnoli), as TFRecord files use it.
#pragma once

#include <cstdint>
#include <string_view>

namespace ddp::train {

/// Polynomial 0x1EDC6F41, reflected (RFC 3720, B.4). crc32c("123456789") is 0xE3069283.
uint32_t crc32c(std::string_view bytes);

/// As stored next to the data it covers: tensorflow/core/lib/hash/crc32c.h, Mask().
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace ddp::train
