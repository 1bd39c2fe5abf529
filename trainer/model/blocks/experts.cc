#include "trainer/model/blocks/experts.h"

#include <vector>

#include "trainer/model/blocks/uninitialized_layers.h"
#include "trainer/model/ops/block_ops.h"

namespace ddp::train {
namespace {

/// The parts of its weights that this rank has; sums over ranks are the caller's.
class ExpertImpl : public torch::nn::Module {
 public:
  explicit ExpertImpl(const ExpertsShape& s)
      : gate_(register_module(s.gate, AdaptableLinear(s.width, s.inner, /*with_bias=*/false))),
        up_(register_module(s.up, AdaptableLinear(s.width, s.inner, /*with_bias=*/false))),
        down_(register_module(s.down, AdaptableLinear(s.inner, s.width, /*with_bias=*/false))) {}

  torch::Tensor forward(const torch::Tensor& x) { return down_(ops::swiglu(gate_(x), up_(x))); }
  bool is_trained() const { return gate_->weight.defined() && gate_->weight.requires_grad(); }

 private:
  AdaptableLinear gate_, up_, down_;
};

std::vector<int64_t> numbers_of(const torch::Tensor& on_host) {
  const auto* const first = on_host.const_data_ptr<int64_t>();
  return {first, first + on_host.numel()};
}

}  // namespace

void RouterLoad::add(const torch::Tensor& counts_E, const torch::Tensor& probs_NE) {
  const auto sums_2E = at::cat({counts_E.to(probs_NE.scalar_type()), probs_NE.sum(0)});
  sums_2E_ = sums_2E_.defined() ? sums_2E_ + sums_2E : sums_2E;
}

torch::Tensor RouterLoad::balancing_loss(int64_t choices) const {
  const auto means_2E = sums_2E_ / static_cast<double>(choices);
  const auto shares_E = means_2E.narrow(0, 0, experts_);
  return (shares_E * means_2E.narrow(0, experts_, experts_)).sum() * experts_;
}

torch::Tensor RouterLoad::append_to(const torch::Tensor& x_BSC) const {
  const int64_t B = x_BSC.size(0), C = x_BSC.size(2);
  const int64_t own_rows = rows(experts_, C);
  const auto sums = sums_2E_.defined() ? sums_2E_ : x_BSC.new_zeros({2 * experts_});
  const auto of_first = at::constant_pad_nd(sums, {0, own_rows * C - 2 * experts_});
  const auto of_all = at::constant_pad_nd(of_first.view({1, own_rows, C}), {0, 0, 0, 0, 0, B - 1});
  return at::cat({x_BSC, of_all.to(x_BSC.scalar_type())}, 1);
}

torch::Tensor RouterLoad::take_from(const torch::Tensor& x) {
  const int64_t own_rows = rows(experts_, x.size(2));
  const int64_t S = x.size(1) - own_rows;
  sums_2E_ = x.select(0, 0).narrow(0, S, own_rows).reshape({-1}).narrow(0, 0, 2 * experts_);
  return x.narrow(1, 0, S).contiguous();
}

ExpertsImpl::ExpertsImpl(const ExpertsShape& shape, const LayerOptions& layers)
    : shape_(shape), ranks_(layers.ranks), owners_(layers.experts), own_{0, shape.experts} {
  if (owners_) {
    const int64_t own = shape.experts / owners_->size();
    own_ = {own * owners_->rank(), own * (owners_->rank() + 1)};
  }
  gate = register_module("gate", uninitialized_linear(shape.width, shape.experts));
  experts = register_module("experts", torch::nn::ModuleList());
  for (int64_t e = 0; e < shape.experts; ++e) {
    if (own_.begin <= e && e < own_.end)
      experts->push_back(std::make_shared<ExpertImpl>(shape));
    else
      experts->push_back(std::make_shared<torch::nn::IdentityImpl>());  // the others keep numbers
  }
}

ResidualStream ExpertsImpl::forward(const Normed& x, const BlockPass& pass) {
  const int64_t K = shape_.per_token;
  const auto x_BTC = enter_layers(x.y, ranks_, pass.rows);
  const auto x_NC = x_BTC.reshape({-1, shape_.width});
  const auto logits_NE = gate(x_NC);
  const auto probs_NE = ops::wide(logits_NE).softmax(-1);
  auto [weights_NK, chosen_NK] = probs_NE.topk(K);
  if (shape_.normalized) weights_NK = weights_NK / weights_NK.sum(-1, /*keepdim=*/true);
  if (shape_.rounds_weights) weights_NK = weights_NK.to(logits_NE.scalar_type());

  const auto expert_of_M = chosen_NK.reshape({-1});  // M = N K
  const auto counts_E = torch::zeros({shape_.experts}, expert_of_M.options())
                            .scatter_add_(0, expert_of_M, torch::ones_like(expert_of_M));
  // Each rank has the loss's whole gradient here, and the router's are summed over the ranks.
  const bool counts_for_all = !ranks_ || ranks_->rank() == 0;
  if (pass.load != nullptr) pass.load->add(counts_E, counts_for_all ? probs_NE : probs_NE.detach());

  const auto order_M = expert_of_M.argsort(/*stable=*/true, 0, /*descending=*/false);
  // Repeated before they are sorted: the backward pass then adds one row to each place.
  const auto repeated_MC = x_NC.unsqueeze(1).expand({-1, K, -1}).reshape({-1, shape_.width});
  const auto sorted_MC = repeated_MC.index_select(0, order_M);
  const auto products_MC = owners_ ? products_of_owners(sorted_MC, counts_E)
                                   : products(sorted_MC, numbers_of(counts_E.to(torch::kCPU)));
  const auto y_NKC = products_MC.index_select(0, order_M.argsort()).view({-1, K, shape_.width});
  const auto y_NC = (y_NKC * weights_NK.unsqueeze(-1)).sum(1).to(y_NKC.scalar_type());
  return {x.sum, leave_layers(y_NC.view(x_BTC.sizes()), ranks_, pass.rows)};
}

// The rows that arrive are of one rank after the other, each sorted by expert.
torch::Tensor ExpertsImpl::products_of_owners(const torch::Tensor& sorted,
                                              const torch::Tensor& counts_E) {
  const int64_t R = owners_->size();
  const std::vector<int64_t> one_row(static_cast<std::size_t>(R), 1);
  const auto counts_RE = counts_E.view({R, own_.size()});
  const auto of_others_RE = owners_->all_to_all(counts_RE, one_row, one_row);
  const auto host_2RE = at::stack({counts_RE, of_others_RE}).to(torch::kCPU);  // one wait
  const auto sent = numbers_of(host_2RE[0].sum(1)), received = numbers_of(host_2RE[1].sum(1));
  const auto arrived = exchange_rows(sorted, owners_, sent, received);
  const auto expert_of_row = at::arange(own_.size(), torch::kInt64)
                                 .repeat({R})
                                 .repeat_interleave(host_2RE[1].reshape({-1}))
                                 .to(arrived.device());
  const auto order = expert_of_row.argsort(/*stable=*/true, 0, /*descending=*/false);
  const auto y = products(arrived.index_select(0, order), numbers_of(host_2RE[1].sum(0)));
  return exchange_rows(y.index_select(0, order.argsort()), owners_, received, sent);
}

// An expert without tokens that is trained takes part: its gradients are zeros, as transformers'
// are, and not missing. So does one that is shared: each rank then goes through the same passes.
torch::Tensor ExpertsImpl::products(const torch::Tensor& sorted, torch::IntArrayRef sizes) {
  const auto parts = sorted.split_with_sizes(sizes);
  std::vector<torch::Tensor> outputs;
  for (std::size_t e = 0; e < parts.size(); ++e) {
    auto* const expert = experts[e + static_cast<std::size_t>(own_.begin)]->as<ExpertImpl>();
    if (parts[e].size(0) > 0 || owners_ || (c10::GradMode::is_enabled() && expert->is_trained()))
      outputs.push_back(expert->forward(parts[e]));
  }
  return at::cat(outputs);
}

}  // namespace ddp::train
