// The GGUF container, version 3, which llama.cpp reads: metadata, a list of tensors, their numbers.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ddp::train {

/// ggml's numbers of the types.
enum class GgufType : uint32_t { kF32 = 0, kF16 = 1, kQ8_0 = 8, kBF16 = 30 };

using GgufValue = std::variant<bool, uint32_t, float, std::string, std::vector<std::string>,
                               std::vector<float>, std::vector<int32_t>>;
/// Keys and values, in the order of the file.
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

/// Receives the next bytes of a tensor.
using GgufSink = std::function<void(const void* data, std::size_t size)>;

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  ///< As torch has it: the last dimension is contiguous.
  GgufType type = GgufType::kF32;
  /// Passes all bytes to the sink, in order and in any parts. Called once, when its turn has come:
  /// no other tensor need be in memory then.
  std::function<void(const GgufSink&)> write{};
};

/// Numbers of a row that share a scale.
inline constexpr int64_t kQ8Block = 32;
/// The largest absolute value whose scale is finite as float16.
inline constexpr float kLargestQ8 = 65504.0F * 127.0F;

/// Writes whole blocks of `values` as ggml's reference quantizer rounds them: a float16 scale and
/// 32 signed bytes each. All values are finite and within kLargestQ8.
void write_q8_0(std::span<const float> values, const GgufSink& sink);

/// Writes the file by AtomicFile. Throws RunError, and any exception of a tensor's write().
void write_gguf(const std::string& path, const GgufMetadata& metadata,
                const std::vector<GgufTensor>& tensors);

}  // namespace ddp::train
