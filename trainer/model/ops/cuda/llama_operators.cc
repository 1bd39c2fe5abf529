// Operators of Llama's blocks, by the kernels of llama.cu.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <tuple>

#include "trainer/model/ops/cuda/kernel_module.h"
#include "trainer/model/ops/cuda/operator_parts.h"

namespace ddp::train {
namespace {

constexpr int64_t kElements = 4096;  // of a block

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  check_eights(gate, gate);
  check_eights(up, gate);
  const c10::DeviceGuard device(gate.device());
  auto y = at::empty_like(gate);
  if (y.numel() == 0) return y;
  static const CUfunction kernel = own_kernel("ddp_swiglu");
  launch(kernel, blocks_for(gate.numel(), kElements), 256, 0, gate.const_data_ptr(),
         up.const_data_ptr(), y.data_ptr(), gate.numel(), kElements);
  return y;
}

std::tuple<at::Tensor, at::Tensor> swiglu_backward(const at::Tensor& dy, const at::Tensor& gate,
                                                   const at::Tensor& up) {
  for (const at::Tensor* x : {&gate, &up, &dy}) check_eights(*x, gate);
  const c10::DeviceGuard device(gate.device());
  const auto dgate = at::empty_like(gate), dup = at::empty_like(up);
  if (dy.numel() == 0) return {dgate, dup};
  static const CUfunction kernel = own_kernel("ddp_swiglu_backward");
  launch(kernel, blocks_for(gate.numel(), kElements), 256, 0, dy.const_data_ptr(),
         gate.const_data_ptr(), up.const_data_ptr(), dgate.data_ptr(), dup.data_ptr(), gate.numel(),
         kElements);
  return {dgate, dup};
}

/// q [B, T, H, D], k [B, T, K, D]; cos and sin [.., D / 2], the angles of T or of B T tokens.
std::tuple<at::Tensor, at::Tensor> rotate(const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& cos, const at::Tensor& sin,
                                          bool backward) {
  check_rows(q, at::kBFloat16, q);
  check_rows(k, at::kBFloat16, k);
  const int64_t tokens = q.size(0) * q.size(1), heads = q.size(2), key_heads = k.size(2);
  const int64_t dim = q.size(3), positions = cos.numel() * 2 / dim;
  TORCH_CHECK(dim % 16 == 0 && k.size(3) == dim && k.numel() == tokens * key_heads * dim,
              "expected heads of the same multiple of 16");
  check_columns(cos, positions * dim / 2);
  check_columns(sin, positions * dim / 2);
  TORCH_CHECK(positions > 0 && tokens % positions == 0, "expected angles of each position");
  const c10::DeviceGuard device(q.device());
  const auto rotated_q = at::empty_like(q), rotated_k = at::empty_like(k);
  if (q.numel() == 0) return {rotated_q, rotated_k};
  constexpr int64_t kChunk = 512;
  static const CUfunction kernel = own_kernel("ddp_rotate");
  launch(kernel, blocks_for(tokens * (heads + key_heads) * (dim / 16), kChunk), 256, 0,
         q.const_data_ptr(), k.const_data_ptr(), cos.const_data_ptr(), sin.const_data_ptr(),
         rotated_q.data_ptr(), rotated_k.data_ptr(), tokens, heads, key_heads, dim, positions,
         kChunk, backward ? -1.0F : 1.0F);
  return {rotated_q, rotated_k};
}

}  // namespace

void register_llama_operators(torch::Library& cuda) {
  cuda.impl("swiglu", swiglu);
  cuda.impl("swiglu_backward", swiglu_backward);
  cuda.impl("rotate", rotate);
}

}  // namespace ddp::train

TORCH_LIBRARY_FRAGMENT(ddp_run, library) {
  library.def("swiglu(Tensor gate, Tensor up) -> Tensor");
  library.def("swiglu_backward(Tensor dy, Tensor gate, Tensor up) -> (Tensor, Tensor)");
  library.def(
      "rotate(Tensor q, Tensor k, Tensor cos, Tensor sin, bool backward) -> (Tensor, Tensor)");
}
