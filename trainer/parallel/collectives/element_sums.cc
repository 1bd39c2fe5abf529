#include "trainer/parallel/collectives/element_sums.h"

#include <algorithm>
#include <array>
#include <type_traits>

namespace ddp::train {
namespace {

struct TypeTraits {
  std::size_t bytes;
  const char* name;
};
/// In the order of ElementType.
constexpr std::array<TypeTraits, 5> kTypes = {
    {{4, "float32"}, {8, "float64"}, {4, "int32"}, {8, "int64"}, {1, "uint8"}}};

struct Sum {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a + b);
  }
};

struct Larger {
  template <class T>
  static T of(T a, T b) {
    return a < b ? b : a;
  }
};

// `out` may be one of the sources.
template <class T, class Op>
void combine(T* out, const std::byte* const* sources, std::size_t ranks, std::size_t count) {
  const auto source = [&](std::size_t rank) { return reinterpret_cast<const T*>(sources[rank]); };
  if (ranks == 2) {
    const T* const a = source(0);
    const T* const b = source(1);
    for (std::size_t i = 0; i < count; ++i) out[i] = Op::of(a[i], b[i]);
    return;
  }
  constexpr std::size_t kBlock = 4096 / sizeof(T);
  std::array<T, kBlock> sum;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t n = std::min(kBlock, count - begin);
    std::copy_n(source(0) + begin, n, sum.data());
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      const T* const next = source(rank) + begin;
      for (std::size_t i = 0; i < n; ++i) sum[i] = Op::of(sum[i], next[i]);
    }
    std::copy_n(sum.data(), n, out + begin);
  }
}

// Sums of whole numbers wrap around, as torch's do.
template <class T>
void combine_by(bool largest, void* out, const std::vector<const std::byte*>& sources,
                std::size_t count) {
  if (largest)
    return combine<T, Larger>(static_cast<T*>(out), sources.data(), sources.size(), count);
  if constexpr (std::is_integral_v<T>) {
    using Wrapping = std::make_unsigned_t<T>;
    combine<Wrapping, Sum>(static_cast<Wrapping*>(out), sources.data(), sources.size(), count);
  } else {
    combine<T, Sum>(static_cast<T*>(out), sources.data(), sources.size(), count);
  }
}

}  // namespace

std::size_t bytes_of(ElementType type) { return kTypes[static_cast<std::size_t>(type)].bytes; }
const char* name_of(ElementType type) { return kTypes[static_cast<std::size_t>(type)].name; }

void combine_elements(ElementType type, bool largest, void* out,
                      const std::vector<const std::byte*>& sources, std::size_t bytes) {
  const std::size_t count = bytes / bytes_of(type);
  switch (type) {
    case ElementType::kFloat32:
      return combine_by<float>(largest, out, sources, count);
    case ElementType::kFloat64:
      return combine_by<double>(largest, out, sources, count);
    case ElementType::kInt32:
      return combine_by<int32_t>(largest, out, sources, count);
    case ElementType::kInt64:
      return combine_by<int64_t>(largest, out, sources, count);
    case ElementType::kUint8:
      return combine_by<uint8_t>(largest, out, sources, count);
  }
}

}  // namespace ddp::train
