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
  constexpr bool divided() const { return here != all; }
  constexpr int64_t of(int64_t i) const { return i / here * all + first + i % here; }
};

/// Each element is kept with probability 1 - p, 0 <= p < 1, and then divided by that.
struct Dropout {
  double p = 0.0;
  uint64_t seed = 0;
  Places places{};  ///< Rows; in attention, heads. Masks equal those of one process.
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

/// Rows q [H D], k [K D], v [K D] of a token into one of [(H + 2 K repeat) D]: query heads, key
/// heads, value heads, each of the last two `repeat` times in a row. The pairs (i, i + D / 2) of
/// query and key heads are turned by the angles of the token's position: cos and sin [.., D / 2],
/// one row for each of `positions` tokens that follow each other, then again from the first.
struct RotaryShape {
  int64_t heads = 0;      ///< H
  int64_t key_heads = 0;  ///< K
  int64_t repeat = 1;
  int64_t head_dim = 0;  ///< D, even
  int64_t positions = 0;
};

/// Rows of a weight in 4 or 8 bits, one after the other (weight_codec.h).
struct CodedRows {
  const uint8_t* codes;
  const float* scales;  ///< 4 bits: of each kCodedBlock numbers, which divide a row; else of a row.
  const float* table;  ///< The 16 values of 4 bits, the first code in a byte's upper half; null: 8.
};
inline constexpr int64_t kCodedBlock = 64;
inline constexpr float kEightBitStep = 7.874015718698502e-3F;  ///< 1 / 127

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
  /// sum = x + residual, y = weight * sum / its root mean square with `epsilon` under the root,
  /// whose inverse is the row's scale. Null residual: sum is x and not written.
  void (*add_rms_norm)(const float* x, const float* residual, const float* weight, float epsilon,
                       float* sum, float* y, float* scales, Rows rows);
  /// dx = dsum and the gradient of the norm; sums[column] <- the weight's over these rows. Null
  /// dsum: zeros.
  void (*rms_norm_backward)(const float* dy, const float* dsum, const float* sum,
                            const float* weight, const float* scales, float* dx, float* sums,
                            Rows rows);
  /// y = silu(gate) * up.
  void (*swiglu)(const float* gate, const float* up, float* y, Rows rows);
  void (*swiglu_backward)(const float* dy, const float* gate, const float* up, float* dgate,
                          float* dup, Rows rows);
  /// See RotaryShape; rows.columns is not used.
  void (*rotate_heads)(const float* q, const float* k, const float* v, const float* cos,
                       const float* sin, float* out, RotaryShape shape, Rows rows);
  void (*rotate_heads_backward)(const float* dout, const float* cos, const float* sin, float* dq,
                                float* dk, float* dv, RotaryShape shape, Rows rows);
  /// Causal attention with dropout of the heads [first, last) of B * H. Probabilities are those
  /// before dropout; `scratch`: attention_scratch() floats of the calling thread.
  void (*attention)(const float* qkv, float* y, float* probabilities, float* scratch,
                    Dropout dropout, AttentionShape shape, int64_t first, int64_t last);
  void (*attention_backward)(const float* dy, const float* qkv, const float* probabilities,
                             float* dqkv, float* scratch, Dropout dropout, AttentionShape shape,
                             int64_t first, int64_t last);
  /// out = the rows of the weight in float32.
  void (*decode)(CodedRows weight, float* out, Rows rows);
  /// y[row] = the row of the weight times x.
  void (*coded_dot)(CodedRows weight, const float* x, float* y, Rows rows);
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
