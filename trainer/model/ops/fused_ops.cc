#include "trainer/model/ops/fused_ops.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>

#include <mutex>
#include <utility>

#include "trainer/model/ops/row_blocks.h"
#include "trainer/runtime/parallel_for.h"

namespace ddp::train::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

cpu::Dropout drawn(double p, const Places& places = {}) {
  if (p <= 0.0) return {};
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return {p, at::check_generator<at::CPUGeneratorImpl>(generator)->random64(), places};
}

void save(AutogradContext* context, const cpu::Dropout& dropout) {
  const Places& places = dropout.places;
  context->saved_data["p"] = dropout.p;
  context->saved_data["seed"] = static_cast<int64_t>(dropout.seed);
  context->saved_data["places"] = std::vector<int64_t>{places.here, places.all, places.first};
}

cpu::Dropout saved_dropout(AutogradContext* context) {
  const auto places = context->saved_data["places"].toIntVector();
  return {context->saved_data["p"].toDouble(),
          static_cast<uint64_t>(context->saved_data["seed"].toInt()),
          {places[0], places[1], places[2]}};
}

torch::Tensor flat(const torch::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

std::vector<int64_t> with_last(const torch::Tensor& x, int64_t last) {
  auto shape = x.sizes().vec();
  shape.back() = last;
  return shape;
}

/// The gradients of x [.., K] and weight [N, K] from that of their product, dy [M, N]; undefined
/// where nobody wants them. Inputs 0 and 1 of the function are x and weight.
std::pair<torch::Tensor, torch::Tensor> product_gradients(AutogradContext* context,
                                                          const torch::Tensor& x,
                                                          const torch::Tensor& weight,
                                                          const torch::Tensor& dy) {
  torch::Tensor dx, dweight;
  if (context->needs_input_grad(0)) dx = at::mm(dy, weight).view(x.sizes());
  if (context->needs_input_grad(1)) dweight = at::mm(dy.t(), flat(x));
  return {dx, dweight};
}

struct LinearGelu : Function<LinearGelu> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight, const torch::Tensor& bias, bool tanh) {
    const auto product = at::mm(flat(x), weight.t());  // becomes the derivative
    auto y = torch::empty_like(product);
    by_blocks(product, [&](cpu::Rows rows, int64_t) {
      cpu::kernels().bias_gelu(values_in(product), values_of(bias), values_in(y), tanh, rows);
    });
    context->save_for_backward({x, weight, product});
    return y.view(with_last(x, y.size(1)));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto& dy = saved[2];  // when it has been multiplied
    const auto gradient = gradients[0].contiguous();
    const auto sums = sums_for(dy);
    by_blocks(dy, [&](cpu::Rows rows, int64_t block) {
      cpu::kernels().multiply_and_sum(values_in(dy), values_of(gradient), row_of(sums, block),
                                      rows);
    });
    const auto [dx, dweight] = product_gradients(context, saved[0], saved[1], dy);
    return {dx, dweight, sums.sum(0), torch::Tensor()};
  }
};

/// Without what a backward pass needs.
torch::Tensor linear_gelu_alone(const torch::Tensor& x, const torch::Tensor& weight,
                                const torch::Tensor& bias, bool tanh) {
  const auto y = at::mm(flat(x), weight.t());
  by_blocks(y, [&](cpu::Rows rows, int64_t) {
    auto* values = values_in(y);
    cpu::kernels().bias_gelu(values, values_of(bias), values, tanh, rows);
  });
  return y.view(with_last(x, y.size(1)));
}

struct LinearDropoutAdd : Function<LinearDropoutAdd> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight, const torch::Tensor& bias,
                               const std::optional<torch::Tensor>& residual, double p) {
    const cpu::Dropout dropout = drawn(p);
    const auto y = at::mm(flat(x), weight.t());
    const auto added = residual ? residual->contiguous() : torch::Tensor();
    by_blocks(y, [&](cpu::Rows rows, int64_t) {
      auto* values = values_in(y);
      cpu::kernels().bias_dropout_add(values, values_of(bias), values_of(added), values, dropout,
                                      rows);
    });
    context->save_for_backward({x, weight});
    context->saved_data["added"] = added.defined();
    save(context, dropout);
    return y.view(with_last(x, y.size(1)));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const cpu::Dropout dropout = saved_dropout(context);
    const auto gradient = flat(gradients[0].contiguous());
    const auto dy = dropout.p > 0.0 ? torch::empty_like(gradient) : gradient;
    const auto sums = sums_for(gradient);
    by_blocks(gradient, [&](cpu::Rows rows, int64_t block) {
      cpu::kernels().dropout_backward(values_of(gradient),
                                      dropout.p > 0.0 ? values_in(dy) : nullptr,
                                      row_of(sums, block), dropout, rows);
    });
    const auto [dx, dweight] = product_gradients(context, saved[0], saved[1], dy);
    const bool added = context->saved_data["added"].toBool();
    return {dx, dweight, sums.sum(0), added ? gradients[0] : torch::Tensor(), torch::Tensor()};
  }
};

struct Attention : Function<Attention> {
  static cpu::AttentionShape shape_of(const torch::Tensor& qkv, int64_t heads) {
    return {qkv.size(1), heads, qkv.size(2) / 3 / heads};
  }

  template <typename Work>
  static void by_heads(int64_t count, const cpu::AttentionShape& shape, const Work& work) {
    parallel_for(count, 1, at::get_num_threads(), [&](int64_t begin, int64_t end) {
      const auto scratch = torch::empty({cpu::attention_scratch(shape)}, torch::kFloat32);
      work(begin, end, values_in(scratch));
    });
  }

  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& given, int64_t heads,
                               double p, const Places& places) {
    const auto qkv = given.contiguous();
    const cpu::Dropout dropout = drawn(p, places);
    const auto shape = shape_of(qkv, heads);
    const int64_t count = qkv.size(0) * heads;
    const auto y = torch::empty({qkv.size(0), qkv.size(1), qkv.size(2) / 3}, qkv.options());
    const auto probabilities =
        torch::empty({count, shape.length, cpu::padded(shape.length)}, qkv.options());
    by_heads(count, shape, [&](int64_t first, int64_t last, float* scratch) {
      cpu::kernels().attention(values_of(qkv), values_in(y), values_in(probabilities), scratch,
                               dropout, shape, first, last);
    });
    context->save_for_backward({qkv, probabilities});
    context->saved_data["heads"] = heads;
    save(context, dropout);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto& qkv = saved[0];
    const auto dy = gradients[0].contiguous();
    const int64_t heads = context->saved_data["heads"].toInt();
    const cpu::Dropout dropout = saved_dropout(context);
    const auto shape = shape_of(qkv, heads);
    const auto dqkv = torch::empty_like(qkv);
    by_heads(qkv.size(0) * heads, shape, [&](int64_t first, int64_t last, float* scratch) {
      cpu::kernels().attention_backward(values_of(dy), values_of(qkv), values_of(saved[1]),
                                        values_in(dqkv), scratch, dropout, shape, first, last);
    });
    return {dqkv, torch::Tensor(), torch::Tensor(), torch::Tensor()};
  }
};

struct DropoutAdd : Function<DropoutAdd> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& given,
                               const std::optional<torch::Tensor>& bias,
                               const std::optional<torch::Tensor>& residual, double p,
                               const Places& places) {
    const auto x = given.contiguous();
    const auto added = residual ? residual->contiguous() : torch::Tensor();
    const float* const biases = bias ? values_of(*bias) : nullptr;
    const cpu::Dropout dropout = drawn(p, places);
    const auto y = torch::empty_like(x);
    by_blocks(x, [&](cpu::Rows rows, int64_t) {
      cpu::kernels().bias_dropout_add(values_of(x), biases, values_of(added), values_in(y), dropout,
                                      rows);
    });
    context->saved_data["biased"] = biases != nullptr;
    context->saved_data["added"] = added.defined();
    save(context, dropout);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const cpu::Dropout dropout = saved_dropout(context);
    const auto dy = gradients[0].contiguous();
    const auto dx = torch::empty_like(dy);
    const bool biased = context->saved_data["biased"].toBool();
    const auto sums = biased ? sums_for(dy) : torch::Tensor();
    by_blocks(dy, [&](cpu::Rows rows, int64_t block) {
      cpu::kernels().dropout_backward(values_of(dy), values_in(dx),
                                      biased ? row_of(sums, block) : nullptr, dropout, rows);
    });
    const bool added = context->saved_data["added"].toBool();
    return {dx, biased ? sums.sum(0) : torch::Tensor(), added ? gradients[0] : torch::Tensor(),
            torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

bool takes(const torch::Tensor& x) { return x.is_cpu() && x.scalar_type() == torch::kFloat32; }

bool takes_products(const torch::Tensor& x) {
  return takes(x) && !at::autocast::is_autocast_enabled(torch::kCPU);
}

bool takes_attention(int64_t length, int64_t head_dim) {
  return cpu::takes_attention(length, head_dim);
}

torch::Tensor linear_gelu(const torch::Tensor& x, const torch::Tensor& weight,
                          const torch::Tensor& bias, bool tanh) {
  if (!at::GradMode::is_enabled()) return linear_gelu_alone(x, weight, bias, tanh);
  return LinearGelu::apply(x, weight, bias, tanh);
}

torch::Tensor linear_dropout_add(const torch::Tensor& x, const torch::Tensor& weight,
                                 const torch::Tensor& bias,
                                 const std::optional<torch::Tensor>& residual, double p) {
  return LinearDropoutAdd::apply(x, weight, bias, residual, p);
}

torch::Tensor causal_attention(const torch::Tensor& qkv, int64_t heads, double p,
                               const Places& places) {
  return Attention::apply(qkv, heads, p, places);
}

torch::Tensor dropout(const torch::Tensor& x, double p, const Places& places) {
  const std::optional<torch::Tensor> none;
  return p > 0.0 ? DropoutAdd::apply(x, none, none, p, places) : x;
}

torch::Tensor dropout_add(const torch::Tensor& x, const torch::Tensor& residual, double p) {
  const std::optional<torch::Tensor> none;
  return p > 0.0 ? DropoutAdd::apply(x, none, std::optional(residual), p, Places{}) : residual + x;
}

torch::Tensor bias_dropout_add(const torch::Tensor& x, const torch::Tensor& bias,
                               const torch::Tensor& residual, double p, const Places& places) {
  return DropoutAdd::apply(x, std::optional(bias), std::optional(residual), p, places);
}

}  // namespace ddp::train::fused
