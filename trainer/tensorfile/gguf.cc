#include "trainer/tensorfile/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"
#include "trainer/tensorfile/safetensors.h"

namespace ddp::train {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");

constexpr uint32_t kGgufVersion = 3;
constexpr std::size_t kAlignment = 32;
constexpr uint32_t kArrayOf = 9;
constexpr std::size_t kQ8Bytes = sizeof(uint16_t) + kQ8Block;

/// Everything before the tensors' numbers.
class GgufFront {
 public:
  template <class Number>
  void number(Number value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void string(std::string_view value) {
    number<uint64_t>(value.size());
    text_ += value;
  }
  void value(const GgufValue& value) {
    std::visit([this](const auto& any) { typed(any); }, value);
  }
  const std::string& padded() {
    text_.resize((text_.size() + kAlignment - 1) / kAlignment * kAlignment);
    return text_;
  }

 private:
  void typed(bool value) { number<uint32_t>(7), number<uint8_t>(value ? 1 : 0); }
  void typed(uint32_t value) { number<uint32_t>(4), number(value); }
  void typed(float value) { number<uint32_t>(6), number(value); }
  void typed(const std::string& value) { number<uint32_t>(8), string(value); }
  void typed(const std::vector<std::string>& values) {
    array(8, values.size());
    for (const std::string& each : values) string(each);
  }
  void typed(const std::vector<float>& values) {
    array(6, values.size());
    for (const float each : values) number(each);
  }
  void typed(const std::vector<int32_t>& values) {
    array(5, values.size());
    for (const int32_t each : values) number(each);
  }
  void array(uint32_t type, std::size_t size) {
    number(kArrayOf), number(type), number<uint64_t>(size);
  }

  std::string text_;
};

std::optional<std::size_t> gguf_bytes(const GgufTensor& tensor) {
  if (tensor.type != GgufType::kQ8_0)
    return bytes_of_shape(tensor.shape, tensor.type == GgufType::kF32 ? "F32" : "F16");
  if (tensor.shape.empty() || tensor.shape.back() % kQ8Block != 0) return std::nullopt;
  auto blocks = tensor.shape;
  blocks.back() /= kQ8Block;
  const auto count = bytes_of_shape(blocks, "U8");
  std::size_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count, kQ8Bytes, &bytes)) return std::nullopt;
  return bytes;
}

std::size_t checked_bytes(const GgufTensor& tensor) {
  const auto bytes = gguf_bytes(tensor);
  if (!bytes || *bytes > SIZE_MAX - kAlignment)
    throw RunError(fmt::format("{}: its shape has no size in a GGUF file", tensor.name));
  return *bytes;
}

std::size_t padding_after(std::size_t bytes) {
  return (kAlignment - bytes % kAlignment) % kAlignment;
}

std::string front_of(const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors) {
  GgufFront front;
  for (const char letter : std::string_view("GGUF")) front.number(letter);
  front.number(kGgufVersion);
  front.number<uint64_t>(tensors.size());
  front.number<uint64_t>(metadata.size());
  for (const auto& [key, value] : metadata) {
    front.string(key);
    front.value(value);
  }
  uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    front.string(tensor.name);
    front.number(static_cast<uint32_t>(tensor.shape.size()));
    std::for_each(tensor.shape.rbegin(), tensor.shape.rend(),
                  [&front](int64_t size) { front.number(static_cast<uint64_t>(size)); });
    front.number(static_cast<uint32_t>(tensor.type));
    front.number(offset);
    const std::size_t bytes = checked_bytes(tensor);
    if (__builtin_add_overflow(offset, bytes + padding_after(bytes), &offset))
      throw RunError("the tensors are larger than a file can be");
  }
  return front.padded();
}

/// Rounds to nearest, ties to even. 0 <= value <= 65504.
uint16_t half_bits(float value) {
  constexpr float kSmallestNormal = 0x1p-14F;
  constexpr uint32_t kDropped = 13;
  constexpr uint32_t kExponentShift = (127 - 15) << 23;
  if (value < kSmallestNormal) return static_cast<uint16_t>(std::nearbyint(value * 0x1p24F));
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t half = (1U << (kDropped - 1)) - 1 + ((bits >> kDropped) & 1);
  return static_cast<uint16_t>((bits + half - kExponentShift) >> kDropped);
}

void quantize_block(std::span<const float> values, char* out) {
  constexpr float kSteps = 127.0F;
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  const float scale = largest / kSteps;
  const uint16_t half = half_bits(scale);
  std::memcpy(out, &half, sizeof half);
  // Infinite where all values are subnormal: their scale is 0 as float16.
  const float inverse = scale == 0 ? 0 : 1.0F / scale;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float step = std::isinf(inverse) ? 0 : std::round(values[i] * inverse);
    out[sizeof half + i] = static_cast<char>(static_cast<int8_t>(step));
  }
}

}  // namespace

void write_q8_0(std::span<const float> values, const GgufSink& sink) {
  constexpr std::size_t kBlocksAtOnce = 2048;
  constexpr auto kBlock = static_cast<std::size_t>(kQ8Block);
  std::array<char, kBlocksAtOnce * kQ8Bytes> buffer{};
  std::size_t filled = 0;
  for (std::size_t at = 0; at + kBlock <= values.size(); at += kBlock) {
    quantize_block(values.subspan(at, kBlock), buffer.data() + filled);
    filled += kQ8Bytes;
    if (filled < buffer.size()) continue;
    sink(buffer.data(), filled);
    filled = 0;
  }
  sink(buffer.data(), filled);
}

void write_gguf(const std::string& path, const GgufMetadata& metadata,
                const std::vector<GgufTensor>& tensors) {
  constexpr std::array<char, kAlignment> kZeros{};
  const std::string front = front_of(metadata, tensors);
  remove_stale_temporaries(path);
  AtomicFile file(path);
  file.write(front.data(), front.size());
  for (const GgufTensor& tensor : tensors) {
    const std::size_t size = checked_bytes(tensor);
    std::size_t written = 0;
    tensor.write([&](const void* data, std::size_t bytes) {
      if (bytes > size - written)
        throw RunError(
            fmt::format("{}: has more than the {} bytes of its shape", tensor.name, size));
      file.write(data, bytes);
      written += bytes;
    });
    if (written != size)
      throw RunError(
          fmt::format("{}: has {} of the {} bytes of its shape", tensor.name, written, size));
    file.write(kZeros.data(), padding_after(size));
  }
  file.commit();
}

}  // namespace ddp::train
