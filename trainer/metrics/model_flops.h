// The work of a transformer's training step: what tokens/s is measured against.
#pragma once

#include <cstdint>

namespace ddp::train {

struct ModelSize {
  int64_t parameters = 0;  ///< Without position embeddings.
  int64_t layers = 0;
  int64_t channels = 0;
  int64_t block = 0;  ///< Tokens of a sequence.
};

/// Floating-point operations of forward and backward pass for one token: 6 N for the matrices and
/// 12 L C T for attention (PaLM, arXiv 2204.02311, appendix B), as nanoGPT's estimate_mfu counts
/// them. What is computed again, dropout and the optimizer do not count.
inline double flops_per_token(const ModelSize& size) {
  constexpr double kPerParameter = 6.0;
  constexpr double kPerAttention = 12.0;
  const auto attention = static_cast<double>(size.layers) * static_cast<double>(size.channels) *
                         static_cast<double>(size.block);
  return kPerParameter * static_cast<double>(size.parameters) + kPerAttention * attention;
}

/// Model FLOPs utilization, a share: what all ranks together have done of what their devices could
/// do. `peak`: FLOP/s of one rank's device.
inline double model_flops_utilization(double tokens_per_second, double per_token, double peak,
                                      int64_t ranks) {
  return tokens_per_second * per_token / (peak * static_cast<double>(ranks));
}

}  // namespace ddp::train
