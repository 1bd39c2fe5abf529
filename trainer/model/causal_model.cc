#include "trainer/model/causal_model.h"

#include <algorithm>
#include <utility>

#include "trainer/model/chunked_loss.h"

namespace ddp::train {

torch::Tensor CausalModel::forward(const torch::Tensor& idx_BT, const torch::Tensor& positions_BT) {
  TORCH_CHECK(idx_BT.size(1) <= block_size(), "a sequence of ", idx_BT.size(1),
              " tokens is longer than block_size ", block_size());
  return torch::linear(hidden_states(idx_BT, {nullptr, positions_BT}), head_weight());
}

KeyValueCache CausalModel::new_cache(int64_t capacity, torch::Tensor padding_B) const {
  return {cached_layers(), capacity, std::move(padding_B)};
}

torch::Tensor CausalModel::next_logits(const torch::Tensor& idx_BT, KeyValueCache& cache) {
  TORCH_CHECK(cache.length + idx_BT.size(1) <= std::min(cache.capacity, block_size()),
              "no room for ", idx_BT.size(1), " tokens after ", cache.length);
  return torch::linear(hidden_states(idx_BT, {&cache}).select(1, -1), head_weight());
}

// `auto`: on a GPU, because tensor cores want rows of a multiple of 64.
int64_t CausalModel::logits_padding() const {
  constexpr int64_t kOfGpu = 64;
  const AutoNumber& padded_to = options_.pad_vocab_to_multiple_of;
  const int64_t automatic = head_weight().is_cuda() ? kOfGpu : 1;
  const auto multiple =
      padded_to.automatic ? automatic : std::max<int64_t>(1, static_cast<int64_t>(padded_to.value));
  return (multiple - vocab_size() % multiple) % multiple;
}

/// [..., C] -> [..., V].
torch::Tensor CausalModel::logits(const torch::Tensor& x, const torch::Tensor& table_PC) const {
  const auto all = torch::linear(x, table_PC);
  return table_PC.size(0) == vocab_size() ? all : all.narrow(-1, 0, vocab_size());
}

// `auto`: as many rows of float32 logits as fit into 256 MiB.
int64_t CausalModel::rows_at_a_time(int64_t rows) const {
  constexpr int64_t kAutomaticBytes = int64_t{256} << 20U;
  constexpr int64_t kBytesPerLogit = 4;
  const AutoNumber& size = options_.loss_chunk_size;
  const int64_t chunk =
      size.automatic ? std::max<int64_t>(1, kAutomaticBytes / (kBytesPerLogit * vocab_size()))
                     : static_cast<int64_t>(size.value);
  return chunk == 0 ? rows : std::min(rows, chunk);
}

torch::Tensor CausalModel::loss(const torch::Tensor& idx_BT, const torch::Tensor& targets_BT,
                                const torch::Tensor& positions_BT) {
  const auto targets_N = targets_BT.reshape({-1});
  const auto x_BTC = hidden_states(idx_BT, {nullptr, positions_BT});
  const int64_t chunk = rows_at_a_time(targets_N.size(0));
  if (chunk == targets_N.size(0) && !is_cross_entropy_fused(head_weight(), logits_padding())) {
    const auto table_PC = padded_table(head_weight(), logits_padding());
    const auto logits_NV = logits(x_BTC, table_PC).view({-1, vocab_size()}).to(torch::kFloat32);
    return at::cross_entropy_loss(logits_NV, targets_N, {}, at::Reduction::Mean,
                                  /*ignore_index=*/-1);
  }
  const auto sum = chunked_cross_entropy_sum(x_BTC.view({-1, x_BTC.size(2)}), head_weight(),
                                             targets_N, chunk, logits_padding());
  return sum / targets_N.ne(-1).sum();
}

torch::Tensor CausalModel::evaluation_sums(const torch::Tensor& idx_BT,
                                           const torch::Tensor& targets_BT,
                                           const torch::Tensor& positions_BT) {
  const auto x_BTC = hidden_states(idx_BT, {nullptr, positions_BT});
  const auto x_NC = x_BTC.view({-1, x_BTC.size(2)});
  const auto targets_N = targets_BT.reshape({-1});
  const int64_t chunk = rows_at_a_time(targets_N.size(0));
  const auto table_PC = padded_table(head_weight(), logits_padding());
  auto sums = torch::zeros({3}, x_NC.options().dtype(torch::kFloat32));
  for (int64_t first = 0; first < targets_N.size(0); first += chunk) {
    const int64_t count = std::min(chunk, targets_N.size(0) - first);
    const auto targets_n = targets_N.narrow(0, first, count);
    const auto logits_nV = logits(x_NC.narrow(0, first, count), table_PC);
    const auto loss =
        at::cross_entropy_loss(logits_nV.to(torch::kFloat32), targets_n, {}, at::Reduction::Sum,
                               /*ignore_index=*/-1);
    sums += torch::stack({loss, logits_nV.argmax(-1).eq(targets_n).sum().to(torch::kFloat32),
                          targets_n.ne(-1).sum().to(torch::kFloat32)});
  }
  return sums;
}

torch::Tensor CausalModel::target_losses(const torch::Tensor& idx_BT,
                                         const torch::Tensor& targets_BT) {
  const auto x_BTC = hidden_states(idx_BT, {});
  const auto all_N = targets_BT.reshape({-1});
  const auto rows_n = all_N.ne(-1).nonzero().squeeze(1);
  const auto x_nC = x_BTC.view({-1, x_BTC.size(2)}).index_select(0, rows_n);
  const auto targets_n = all_N.index_select(0, rows_n);
  const auto table_PC = padded_table(head_weight(), logits_padding());
  auto losses_N = torch::zeros(all_N.sizes(), x_nC.options().dtype(torch::kFloat32));
  const int64_t chunk = rows_at_a_time(std::max<int64_t>(1, rows_n.size(0)));
  for (int64_t first = 0; first < rows_n.size(0); first += chunk) {
    const int64_t count = std::min(chunk, rows_n.size(0) - first);
    const auto logits_cV = logits(x_nC.narrow(0, first, count), table_PC).to(torch::kFloat32);
    losses_N.index_copy_(0, rows_n.narrow(0, first, count),
                         at::cross_entropy_loss(logits_cV, targets_n.narrow(0, first, count), {},
                                                at::Reduction::None));
  }
  return losses_N.view(targets_BT.sizes());
}

std::vector<ModelParameter> CausalModel::model_parameters() const {
  std::vector<torch::Tensor> tables;
  for (const auto& module : modules(/*include_self=*/false)) {
    if (const auto* table = module->as<torch::nn::EmbeddingImpl>()) tables.push_back(table->weight);
  }
  const auto role_of = [&](const torch::Tensor& parameter) {
    const auto is_this = [&parameter](const torch::Tensor& t) { return t.is_same(parameter); };
    if (std::any_of(tables.begin(), tables.end(), is_this)) return ParameterRole::kEmbedding;
    if (parameter.dim() < 2) return ParameterRole::kOther;
    return is_this(head_weight()) ? ParameterRole::kLinear : ParameterRole::kHidden;
  };
  std::vector<ModelParameter> result;
  for (const auto& item : named_parameters())
    result.push_back({item.key(), item.value(), role_of(item.value())});
  return result;
}

int64_t CausalModel::parameter_count() const {
  int64_t count = 0;
  for (const auto& tensor : parameters()) count += tensor.numel();
  return count;
}

}  // namespace ddp::train
