#include "trainer/model/ops/gpu_ops.h"

#include <ATen/autocast_mode.h>

#include "trainer/model/ops/gpu_kernels.h"
#include "trainer/model/ops/weight_copies.h"

namespace ddp::train::gpu {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr int64_t kVector = 8;  // columns of gelu(), gelu_backward(), column_sums(), join_thirds()

bool computes_in_bfloat16(const torch::Tensor& x) {
  return x.is_cuda() && at::autocast::is_autocast_enabled(at::kCUDA) &&
         at::autocast::get_autocast_dtype(at::kCUDA) == torch::kBFloat16 && loaded();
}

std::optional<torch::Tensor> if_defined(const torch::Tensor& x) {
  return x.defined() ? std::optional(x) : std::nullopt;
}

torch::Tensor flat(const torch::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

struct AddNorm : Function<AddNorm> {
  static variable_list forward(AutogradContext* context, const torch::Tensor& residual,
                               const torch::Tensor& weight,
                               const std::optional<torch::Tensor>& branch,
                               const std::optional<torch::Tensor>& bias, double epsilon) {
    const auto added = branch ? std::optional(branch->contiguous()) : std::nullopt;
    const auto given = residual.contiguous();
    const auto [sum, y, statistics] = add_norm_forward(given, added, weight, bias, epsilon);
    context->set_materialize_grads(false);
    context->save_for_backward({added ? sum : given, weight, statistics});
    context->saved_data["branch"] = added.has_value();
    context->saved_data["bias"] = bias.has_value();
    return {added ? sum : residual, y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const bool with_branch = context->saved_data["branch"].toBool();
    const bool with_bias = context->saved_data["bias"].toBool();
    const auto dsum = gradients[0].defined() ? gradients[0].contiguous() : torch::Tensor();
    const auto dy = gradients[1].defined() ? gradients[1].contiguous()
                                           : torch::zeros_like(saved[0], torch::kBFloat16);
    const auto [dx, dbranch, parts] = add_norm_backward(dy, if_defined(dsum), saved[0], saved[1],
                                                        saved[2], with_bias, with_branch);
    torch::Tensor dweight, dbias;
    if (context->needs_input_grad(1)) {
      const auto sums = parts.sum(0);
      dweight = sums[0];
      if (with_bias) dbias = sums[1];
    }
    return {dx, dweight, dbranch, dbias, torch::Tensor()};
  }
};

torch::Tensor product(const torch::Tensor& x, const torch::Tensor& weight,
                      const std::optional<torch::Tensor>& bias) {
  const auto transposed = bfloat16_copy(weight).t();
  return bias ? at::addmm(bfloat16_copy(*bias), flat(x), transposed) : at::mm(flat(x), transposed);
}

torch::Tensor with_rows_of(const torch::Tensor& x, const torch::Tensor& y) {
  auto shape = x.sizes().vec();
  shape.back() = y.size(-1);
  return y.view(shape);
}

struct Linear : Function<Linear> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight,
                               const std::optional<torch::Tensor>& bias) {
    context->save_for_backward({x, weight});
    context->saved_data["bias"] = bias.has_value();
    return with_rows_of(x, product(x, weight, bias));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto dy = flat(gradients[0].contiguous());
    auto result = gradients_of_product(context, dy);
    if (wants_bias(context)) result[2] = gradient_of_bias(dy);
    return result;
  }

  /// For few rows one launch is faster than two.
  static torch::Tensor gradient_of_bias(const torch::Tensor& dy) {
    constexpr int64_t kManyRows = 4096;
    const bool in_parts = dy.size(0) >= kManyRows && dy.size(1) % kVector == 0;
    return in_parts ? column_sums(dy).sum(0) : dy.sum(0, /*keepdim=*/false, torch::kFloat32);
  }

  /// There are two inputs with gradients without a bias.
  static bool wants_bias(AutogradContext* context) {
    return context->saved_data["bias"].toBool() && context->needs_input_grad(2);
  }

  /// The gradients of x and of the weight, in float32 like the weight; not of the bias.
  static variable_list gradients_of_product(AutogradContext* context, const torch::Tensor& dy) {
    const auto saved = context->get_saved_variables();
    variable_list result(3);
    if (context->needs_input_grad(0))
      result[0] = at::mm(dy, bfloat16_copy(saved[1])).view(saved[0].sizes());
    if (context->needs_input_grad(1)) result[1] = at::mm(dy.t(), flat(saved[0]), torch::kFloat32);
    return result;
  }
};

struct LinearToHeads : Function<LinearToHeads> {
  static variable_list forward(AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight,
                               const std::optional<torch::Tensor>& bias, int64_t heads) {
    const auto y = Linear::forward(context, x, weight, bias);
    return y.unflatten(-1, {3, heads, -1}).unbind(-3);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto rows = [&](std::size_t i) { return gradients[i].contiguous().flatten(-2); };
    const auto [dy, parts] = join_thirds(rows(0), rows(1), rows(2));
    auto result = Linear::gradients_of_product(context, dy);
    if (Linear::wants_bias(context)) result[2] = parts.sum(0);
    result.emplace_back();
    return result;
  }
};

struct LinearGelu : Function<LinearGelu> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight, const torch::Tensor& bias, bool tanh) {
    const auto inner = product(x, weight, bias);
    context->save_for_backward({x, weight, inner});
    context->saved_data["tanh"] = tanh;
    return with_rows_of(x, gelu(inner, tanh));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto inner = context->get_saved_variables()[2];
    const auto [dinner, parts] =
        gelu_backward(flat(gradients[0].contiguous()), inner, context->saved_data["tanh"].toBool());
    auto result = Linear::gradients_of_product(context, dinner);
    if (context->needs_input_grad(2)) result[2] = parts.sum(0);
    result.emplace_back();
    return result;
  }
};

struct SwiGlu : Function<SwiGlu> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& given_gate,
                               const torch::Tensor& given_up) {
    const auto gate = given_gate.contiguous(), up = given_up.contiguous();
    context->save_for_backward({gate, up});
    return gpu::swiglu(gate, up);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto [dgate, dup] = swiglu_backward(gradients[0].contiguous(), saved[0], saved[1]);
    return {dgate, dup};
  }
};

struct Rotated : Function<Rotated> {
  static variable_list forward(AutogradContext* context, const torch::Tensor& q,
                               const torch::Tensor& k, const torch::Tensor& cos,
                               const torch::Tensor& sin) {
    context->save_for_backward({cos, sin});
    const auto [queries, keys] =
        rotate(q.contiguous(), k.contiguous(), cos, sin, /*backward=*/false);
    return {queries, keys};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto [dq, dk] = rotate(gradients[0].contiguous(), gradients[1].contiguous(), saved[0],
                                 saved[1], /*backward=*/true);
    return {dq, dk, torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

bool takes_norm(const torch::Tensor& x) {
  const int64_t columns = x.size(-1);
  return x.scalar_type() == torch::kFloat32 && columns % 4 == 0 && columns <= kMostNormColumns &&
         computes_in_bfloat16(x);
}

bool takes_product(const torch::Tensor& x) {
  return x.scalar_type() == torch::kBFloat16 && computes_in_bfloat16(x);
}

bool takes_heads(const torch::Tensor& x, const torch::Tensor& weight) {
  return takes_product(x) && weight.size(0) % (3 * kVector) == 0;
}

bool takes_swiglu(const torch::Tensor& gate, const torch::Tensor& up) {
  return gate.size(-1) % kVector == 0 && takes_product(gate) && takes_product(up) &&
         up.sizes() == gate.sizes();
}

bool takes_rotation(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& cos) {
  return q.size(-1) == 2 * cos.size(-1) && k.size(-1) == q.size(-1) &&
         cos.size(-1) % kVector == 0 && takes_product(q) && takes_product(k);
}

Normed add_norm(const torch::Tensor& residual, const std::optional<torch::Tensor>& branch,
                const NormWeights& norm) {
  const auto both =
      AddNorm::apply(residual, norm.weight, branch, if_defined(norm.bias), norm.epsilon);
  return {both[0], both[1]};
}

torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight,
                     const torch::Tensor& bias) {
  return Linear::apply(x, weight, if_defined(bias));
}

std::vector<torch::Tensor> linear_to_heads(const torch::Tensor& x, const torch::Tensor& weight,
                                           const torch::Tensor& bias, int64_t heads) {
  return LinearToHeads::apply(x, weight, if_defined(bias), heads);
}

torch::Tensor linear_gelu(const torch::Tensor& x, const torch::Tensor& weight,
                          const torch::Tensor& bias, bool tanh) {
  if (weight.size(0) % kVector != 0)
    return at::gelu(linear(x, weight, bias), tanh ? "tanh" : "none");
  return LinearGelu::apply(x, weight, bias, tanh);
}

torch::Tensor fused_swiglu(const torch::Tensor& gate, const torch::Tensor& up) {
  return SwiGlu::apply(gate, up);
}

std::pair<torch::Tensor, torch::Tensor> rotated(const torch::Tensor& q_BTHD,
                                                const torch::Tensor& k_BTKD,
                                                const torch::Tensor& cos,
                                                const torch::Tensor& sin) {
  const auto both = Rotated::apply(q_BTHD, k_BTKD, cos.contiguous(), sin.contiguous());
  return {both[0], both[1]};
}

}  // namespace ddp::train::gpu
