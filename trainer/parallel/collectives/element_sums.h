// Element-wise sums and maxima of arrays in a fixed order. Does not use LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::train {

enum class ElementType : uint8_t { kFloat32, kFloat64, kInt32, kInt64, kUint8 };

std::size_t bytes_of(ElementType type);
const char* name_of(ElementType type);

/// Sets `out` (`bytes` long) to the sum of the sources in their order, or to their maximum. It may
/// be one of them.
void combine_elements(ElementType type, bool largest, void* out,
                      const std::vector<const std::byte*>& sources, std::size_t bytes);

}  // namespace ddp::train
