#include "tests/support/fake_cuda/nccl/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fake_nccl {
namespace {

template <typename To, typename From>
To bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

/// Storage of a 16-bit float; sums are formed in float32 and rounded once per addition, as in NCCL.
struct Half {
  uint16_t raw;
  Half() = default;
  explicit Half(float value) : raw(bits<uint16_t>(static_cast<_Float16>(value))) {}
  explicit operator float() const { return static_cast<float>(bits<_Float16>(raw)); }
};

struct Bfloat16 {
  uint16_t raw;
  Bfloat16() = default;
  explicit Bfloat16(float value) {
    const auto wide = bits<uint32_t>(value);
    // To nearest even; a NaN stays one.
    raw = static_cast<uint16_t>(std::isnan(value) ? (wide >> 16) | 0x40U
                                                  : (wide + 0x7fffU + ((wide >> 16) & 1U)) >> 16);
  }
  explicit operator float() const { return bits<float>(uint32_t{raw} << 16); }
};

/// What elements of a type are added up in.
template <typename T>
struct Wide {
  using type = T;
};
template <>
struct Wide<Half> {
  using type = float;
};
template <>
struct Wide<Bfloat16> {
  using type = float;
};

template <typename T>
T combine(T a, T b, int op) {
  switch (op) {
    case ncclProd:
      return static_cast<T>(a * b);
    case ncclMax:
      return a > b || a != a ? a : b;
    case ncclMin:
      return a < b || a != a ? a : b;
    default:
      return static_cast<T>(a + b);
  }
}

template <typename T>
void reduce_as(char* out, const std::vector<const char*>& in, std::size_t count, int op,
               double factor) {
  using Sum = typename Wide<T>::type;
  const bool scaled = op >= ncclNumOps;
  const auto element = [&](std::size_t rank, std::size_t i) {
    T value;
    std::memcpy(&value, in[rank] + i * sizeof(T), sizeof(T));
    const auto wide = static_cast<Sum>(value);
    return scaled ? static_cast<Sum>(static_cast<double>(wide) * factor) : wide;
  };
  for (std::size_t i = 0; i < count; ++i) {
    Sum sum = element(0, i);
    for (std::size_t rank = 1; rank < in.size(); ++rank) sum = combine(sum, element(rank, i), op);
    if (op == ncclAvg) sum = static_cast<Sum>(sum / static_cast<Sum>(in.size()));
    const auto result = static_cast<T>(sum);
    std::memcpy(out + i * sizeof(T), &result, sizeof(T));
  }
}

}  // namespace

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

void reduce(char* out, const std::vector<const char*>& in, std::size_t count, ncclDataType_t type,
            int op, double factor) {
  switch (type) {
    case ncclInt8:
      return reduce_as<int8_t>(out, in, count, op, factor);
    case ncclUint8:
      return reduce_as<uint8_t>(out, in, count, op, factor);
    case ncclInt32:
      return reduce_as<int32_t>(out, in, count, op, factor);
    case ncclUint32:
      return reduce_as<uint32_t>(out, in, count, op, factor);
    case ncclInt64:
      return reduce_as<int64_t>(out, in, count, op, factor);
    case ncclUint64:
      return reduce_as<uint64_t>(out, in, count, op, factor);
    case ncclFloat16:
      return reduce_as<Half>(out, in, count, op, factor);
    case ncclBfloat16:
      return reduce_as<Bfloat16>(out, in, count, op, factor);
    case ncclFloat32:
      return reduce_as<float>(out, in, count, op, factor);
    case ncclFloat64:
      return reduce_as<double>(out, in, count, op, factor);
    default:
      break;
  }
  std::fprintf(stderr, "fake NCCL: no reduction of type %d\n", static_cast<int>(type));
  std::_Exit(2);
}

double scalar_of(const void* scalar, ncclDataType_t type) {
  const auto as = [scalar]<typename T>(T value) {
    std::memcpy(&value, scalar, sizeof value);
    return value;
  };
  switch (type) {
    case ncclFloat16:
      return static_cast<double>(static_cast<float>(as(Half{})));
    case ncclBfloat16:
      return static_cast<double>(static_cast<float>(as(Bfloat16{})));
    case ncclFloat32:
      return static_cast<double>(as(float{}));
    case ncclFloat64:
      return as(double{});
    default:
      break;
  }
  std::fprintf(stderr, "fake NCCL: no factor of type %d\n", static_cast<int>(type));
  std::_Exit(2);
}

}  // namespace fake_nccl
