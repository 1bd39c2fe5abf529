#include "tests/support/fake_cuda/numerics/formulas.h"

#include <vector>

namespace ddp::test::fake_cuda {

void dropout(torch::jit::Stack& stack) {
  const at::Tensor input = stack[0].toTensor();
  const double p = stack[1].toDouble();
  const bool drops = stack[2].isNone() || stack[2].toBool();
  at::Tensor mask = at::ones(input.sizes(), input.options().dtype(at::kBool));
  if (drops) mask.bernoulli_(1.0 - p, stack[3].toGenerator());
  const double scale = !drops ? 1.0 : p >= 1.0 ? 0.0 : 1.0 / (1.0 - p);
  stack = {input.mul(mask).mul_(scale), mask};
}

at::Tensor wide_mm(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  return at::mm(a.to(type), b.to(type));
}
at::Tensor& wide_addmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                       at::ScalarType type, const at::Scalar& beta, const at::Scalar& alpha,
                       at::Tensor& out) {
  return at::addmm_out(out, self, a.to(type), b.to(type), beta, alpha);
}
at::Tensor wide_bmm(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  return at::bmm(a.to(type), b.to(type));
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                                                     at::IntArrayRef shape, const at::Tensor& rstd,
                                                     const std::optional<at::Tensor>& weight,
                                                     std::array<bool, 2> wanted) {
  std::vector<int64_t> inner, outer;
  for (int64_t i = 0; i < x.dim(); ++i)
    (i < x.dim() - static_cast<int64_t>(shape.size()) ? outer : inner).push_back(i);
  const at::Tensor normal = x * rstd;
  const at::Tensor scaled = weight ? dy * *weight : dy;
  at::Tensor dx, dweight;
  if (wanted[0]) dx = rstd * (scaled - normal * (scaled * normal).mean(inner, /*keepdim=*/true));
  if (wanted[1] && weight) dweight = outer.empty() ? dy * normal : (dy * normal).sum(outer);
  return {dx, dweight};
}

}  // namespace ddp::test::fake_cuda
