// Kernels of the training step on a CPU that torch has not, or has only in several passes. float32,
// no LibTorch; the same source is compiled for several instruction sets (kernels.inc).
//
// Dropout masks are a function of (seed, row, column) alone, not of a generator's position: the
// backward pass makes them again, and no number of threads changes them. A row's 64-bit key comes
// from SplitMix64, its elements from a 32-bit integer hash (C. Wellons, "lowbias32", 2018).
#pragma once

#include <cstdint>

namespace ddp::train::cpu {

/// Where rows, or heads, are among those of all ranks: of every `all` of them, this one has `here`
/// that follow each other, from the `first` on.
struct Places {
  int64_t here = 1;
  int64_t all = 1;
  int64_t first = 0;
  constexpr int64_t of(int64_t i) const { return i / here * all + first + i % here; }
};

/// Each element is kept with probability 1 - p, 0 <= p < 1, and then divided by that.
struct Dropout {
  double p = 0.0;
  uint64_t seed = 0;
  Places places{};  ///< Of rows; in attention, of heads. Masks are those of one process.
};

/// Rows of a matrix that one call works on: [first, last) of [rows, columns], row-major.
struct Rows {
  int64_t first = 0;
  int64_t last = 0;
  int64_t columns = 0;
};

/// qkv [B, T, 3, H, D], y [B, T, H, D], probabilities [B, H, T, padded(T)].
struct AttentionShape {
  int64_t length = 0;    ///< T
  int64_t heads = 0;     ///< H
  int64_t head_dim = 0;  ///< D, a multiple of kLanes.
};

inline constexpr int64_t kLanes = 16;
constexpr int64_t padded(int64_t length) { return (length + kLanes - 1) / kLanes * kLanes; }
/// Beyond the longest, torch's flash attention needs less memory and time.
inline constexpr int64_t kLongestAttention = 256;
constexpr bool takes_attention(int64_t length, int64_t head_dim) {
  return length <= kLongestAttention && head_dim % kLanes == 0;
}
constexpr int64_t attention_scratch(AttentionShape shape) {
  return padded(shape.length) * (shape.head_dim + 2 * shape.length);
}

/// Functions for one instruction set. Calls for disjoint rows, or heads, may run at the same time.
struct Kernels {
  const char* instructions;

  /// y = gelu(x + bias), and x <- its derivative there, unless y is x. `tanh`: GPT-2's
  /// approximation. The error function is Abramowitz and Stegun's 7.1.26, as in ATen.
  void (*bias_gelu)(float* x, const float* bias, float* y, bool tanh, Rows rows);
  /// a <- a * b, and sums[column] <- the sum over these rows of it.
  void (*multiply_and_sum)(float* a, const float* b, float* sums, Rows rows);
  /// y = residual + dropout(x + bias); null: no bias, no residual. y may be x.
  void (*bias_dropout_add)(const float* x, const float* bias, const float* residual, float* y,
                           Dropout dropout, Rows rows);
  /// dx = the mask times dy; sums[column] <- the sum over these rows of it; null: not wanted.
  void (*dropout_backward)(const float* dy, float* dx, float* sums, Dropout dropout, Rows rows);
  /// Causal attention with dropout of the heads [first, last) of B * H. Probabilities are those
  /// before dropout; `scratch`: attention_scratch() floats of the calling thread.
  void (*attention)(const float* qkv, float* y, float* probabilities, float* scratch,
                    Dropout dropout, AttentionShape shape, int64_t first, int64_t last);
  void (*attention_backward)(const float* dy, const float* qkv, const float* probabilities,
                             float* dqkv, float* scratch, Dropout dropout, AttentionShape shape,
                             int64_t first, int64_t last);
};

/// The best that this CPU can run.
const Kernels& kernels();
/// All that it can run, the best one last: for tests.
struct KernelList {
  const Kernels* kernels[3] = {};
  int count = 0;
  const Kernels* const* begin() const { return kernels; }
  const Kernels* const* end() const { return kernels + count; }
};
KernelList all_kernels();

}  // namespace ddp::train::cpu
