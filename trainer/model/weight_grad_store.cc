#include "trainer/model/weight_grad_store.h"

#include <ATen/autocast_mode.h>

#include <atomic>
#include <utility>

namespace ddp::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Backward functions are called by autograd, on a GPU in a thread of its own.
std::atomic<WeightGradStore*> g_current{nullptr};

torch::Tensor flat(const torch::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

/// `y`, a product of `x` and `weight` of which autograd knows nothing of the weight.
struct OfWeight : Function<OfWeight> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& y,
                               const torch::Tensor& weight, const torch::Tensor& x) {
    context->save_for_backward({weight, x});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto product = [](const torch::Tensor& dy, const torch::Tensor& x) {
      return at::mm(dy.t(), x);
    };
    return {gradients[0], weight_gradient(saved[0], gradients[0], saved[1], product),
            torch::Tensor()};
  }
};

/// As torch and autocast would give `x` to a product.
torch::Tensor as_computed(const torch::Tensor& x) {
  const auto device = x.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return x.contiguous();
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), x, device)
      .contiguous();
}

}  // namespace

torch::Tensor WeightGradient::compute() const {
  return product(flat(dy), flat(x)).to(weight.scalar_type());
}

WeightGradStore::WeightGradStore() {
  WeightGradStore* none = nullptr;
  TORCH_CHECK(g_current.compare_exchange_strong(none, this), "a second store of weight gradients");
}

WeightGradStore::~WeightGradStore() { g_current = nullptr; }

WeightGradStore* WeightGradStore::current() { return g_current; }

void WeightGradStore::begin(int64_t micro_batch) {
  TORCH_CHECK(left_.try_emplace(micro_batch).second, "micro-batch ", micro_batch, " began before");
  micro_batch_ = micro_batch;
}

void WeightGradStore::put(WeightGradient gradient) {
  left_.at(micro_batch_).push_back(std::move(gradient));
}

void WeightGradStore::compute(int64_t micro_batch) {
  const torch::NoGradGuard no_grad;
  auto left = left_.extract(micro_batch);
  TORCH_CHECK(!left.empty(), "no weight gradients of micro-batch ", micro_batch);
  for (WeightGradient& each : left.mapped()) {
    const WeightGradient gradient = std::exchange(each, {});
    auto& sum = gradient.weight.mutable_grad();
    if (sum.defined())
      sum.add_(gradient.compute());
    else
      sum = gradient.compute();
  }
}

torch::Tensor weight_gradient(const torch::Tensor& weight, const torch::Tensor& dy,
                              const torch::Tensor& x, WeightGradient::Product product) {
  WeightGradient gradient{weight, dy, x.detach(), product};  // not the graph of x
  WeightGradStore* const store = WeightGradStore::current();
  if (store == nullptr) return gradient.compute();
  store->put(std::move(gradient));
  return {};
}

// at::linear, which adds the bias in the product's epilogue: nn::functional::linear adds it to the
// result of three dimensions in a second pass, under autocast with a conversion of each element.
torch::Tensor linear_layer(const torch::Tensor& x, const torch::Tensor& weight,
                           const torch::Tensor& bias) {
  const bool left = WeightGradStore::current() != nullptr && at::GradMode::is_enabled() &&
                    weight.is_leaf() && weight.requires_grad();
  if (!left) return at::linear(x, weight, bias);
  const auto computed = as_computed(x);
  return OfWeight::apply(at::linear(computed, weight.detach(), bias), weight, computed);
}

}  // namespace ddp::train
