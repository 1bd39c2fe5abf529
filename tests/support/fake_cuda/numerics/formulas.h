// What torch has no CPU kernel for, or none that serves here, by formulas over other kernels.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/stack.h>

#include <array>
#include <optional>
#include <tuple>

namespace ddp::test::fake_cuda {

/// native_dropout(input, p, train) with the generator as the fourth word of `stack`: the CPU kernel
/// would draw from the process's own generator.
void dropout(torch::jit::Stack& stack);

/// Products with a wider result.
at::Tensor wide_mm(const at::Tensor& a, const at::Tensor& b, at::ScalarType type);
at::Tensor& wide_addmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                       at::ScalarType type, const at::Scalar& beta, const at::Scalar& alpha,
                       at::Tensor& out);
at::Tensor wide_bmm(const at::Tensor& a, const at::Tensor& b, at::ScalarType type);

/// The backward of at::rms_norm: x and its scale are normalised together.
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                                                     at::IntArrayRef shape, const at::Tensor& rstd,
                                                     const std::optional<at::Tensor>& weight,
                                                     std::array<bool, 2> wanted);

}  // namespace ddp::test::fake_cuda
