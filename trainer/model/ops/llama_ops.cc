#include "trainer/model/ops/llama_ops.h"

#include "trainer/model/ops/row_blocks.h"

namespace ddp::train::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

torch::Tensor contiguous(const torch::Tensor& x) {
  return x.defined() ? x.contiguous() : torch::Tensor();
}

struct AddRmsNorm : Function<AddRmsNorm> {
  static variable_list forward(AutogradContext* context, const torch::Tensor& residual,
                               const torch::Tensor& weight,
                               const std::optional<torch::Tensor>& branch, double epsilon) {
    const auto x = residual.contiguous();
    const auto added = branch ? branch->contiguous() : torch::Tensor();
    const auto sum = branch ? torch::empty_like(x) : x;
    const auto y = torch::empty_like(x);
    const auto scales = torch::empty({rows_of(x)}, x.options());
    by_blocks(x, [&](cpu::Rows rows, int64_t) {
      cpu::kernels().add_rms_norm(values_of(x), values_of(added), values_of(weight),
                                  static_cast<float>(epsilon), values_in(sum), values_in(y),
                                  values_in(scales), rows);
    });
    context->set_materialize_grads(false);
    context->save_for_backward({sum, weight, scales});
    context->saved_data["branch"] = branch.has_value();
    return {branch ? sum : residual, y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto& sum = saved[0];
    const auto dsum = contiguous(gradients[0]);
    const auto dy = gradients[1].defined() ? gradients[1].contiguous() : torch::zeros_like(sum);
    const auto dx = torch::empty_like(sum);
    const auto sums = sums_for(sum);
    by_blocks(sum, [&](cpu::Rows rows, int64_t block) {
      cpu::kernels().rms_norm_backward(values_of(dy), values_of(dsum), values_of(sum),
                                       values_of(saved[1]), values_of(saved[2]), values_in(dx),
                                       row_of(sums, block), rows);
    });
    const bool branched = context->saved_data["branch"].toBool();
    return {dx, context->needs_input_grad(1) ? sums.sum(0) : torch::Tensor(),
            branched ? dx : torch::Tensor(), torch::Tensor()};
  }
};

struct SwiGlu : Function<SwiGlu> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& given_gate,
                               const torch::Tensor& given_up) {
    const auto gate = given_gate.contiguous();
    const auto up = given_up.contiguous();
    const auto y = torch::empty_like(gate);
    by_blocks(gate, [&](cpu::Rows rows, int64_t) {
      cpu::kernels().swiglu(values_of(gate), values_of(up), values_in(y), rows);
    });
    context->save_for_backward({gate, up});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto dy = gradients[0].contiguous();
    const auto dgate = torch::empty_like(dy);
    const auto dup = torch::empty_like(dy);
    by_blocks(dy, [&](cpu::Rows rows, int64_t) {
      cpu::kernels().swiglu_backward(values_of(dy), values_of(saved[0]), values_of(saved[1]),
                                     values_in(dgate), values_in(dup), rows);
    });
    return {dgate, dup};
  }
};

/// [B, T, H, D] -> [B T, H D]: a row for each token.
torch::Tensor by_tokens(const torch::Tensor& x_BTHD) { return x_BTHD.flatten(0, 1).flatten(1); }

struct RotatedHeads : Function<RotatedHeads> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& q,
                               const torch::Tensor& k, const torch::Tensor& v,
                               const torch::Tensor& cos, const torch::Tensor& sin, int64_t repeat) {
    const auto queries = q.contiguous(), keys = k.contiguous(), values = v.contiguous();
    const cpu::RotaryShape shape{q.size(2), k.size(2), repeat, q.size(3),
                                 cos.numel() / cos.size(-1)};
    const auto out = torch::empty(
        {q.size(0), q.size(1), shape.heads + 2 * shape.key_heads * repeat, shape.head_dim},
        q.options());
    by_blocks(by_tokens(out), [&](cpu::Rows rows, int64_t) {
      cpu::kernels().rotate_heads(values_of(queries), values_of(keys), values_of(values),
                                  values_of(cos), values_of(sin), values_in(out), shape, rows);
    });
    context->save_for_backward({cos, sin});
    context->saved_data["shape"] =
        std::vector<int64_t>{shape.heads, shape.key_heads, repeat, shape.head_dim, shape.positions};
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto sizes = context->saved_data["shape"].toIntVector();
    const cpu::RotaryShape shape{sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]};
    const auto dout = gradients[0].contiguous();
    const auto like = [&](int64_t heads) {
      return torch::empty({dout.size(0), dout.size(1), heads, shape.head_dim}, dout.options());
    };
    const auto dq = like(shape.heads), dk = like(shape.key_heads), dv = like(shape.key_heads);
    by_blocks(by_tokens(dout), [&](cpu::Rows rows, int64_t) {
      cpu::kernels().rotate_heads_backward(values_of(dout), values_of(saved[0]),
                                           values_of(saved[1]), values_in(dq), values_in(dk),
                                           values_in(dv), shape, rows);
    });
    return {dq, dk, dv, torch::Tensor(), torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

Normed add_rms_norm(const torch::Tensor& residual, const std::optional<torch::Tensor>& branch,
                    const NormWeights& norm) {
  const auto both = AddRmsNorm::apply(residual, norm.weight, branch, norm.epsilon);
  return {both[0], both[1]};
}

torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up) {
  return SwiGlu::apply(gate, up);
}

torch::Tensor rotated_heads(const RotaryInput& input, int64_t repeat) {
  return RotatedHeads::apply(input.q_BTHD, input.k_BTKD, input.v_BTKD, input.cos.contiguous(),
                             input.sin.contiguous(), repeat);
}

}  // namespace ddp::train::fused
