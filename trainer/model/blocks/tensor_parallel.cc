#include "trainer/model/blocks/tensor_parallel.h"

#include <limits>

namespace ddp::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

void save(AutogradContext* context, const TensorRanksPtr& ranks) {
  context->saved_data["ranks"] = c10::IValue::make_capsule(ranks);
}

TensorRanksPtr saved_ranks(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<TensorRanks>(context->saved_data["ranks"].toCapsule());
}

torch::Tensor dense_copy(const torch::Tensor& x) { return x.clone(at::MemoryFormat::Contiguous); }

/// Shared memory has no sums of 16-bit numbers, and they would be the less exact ones.
torch::Tensor summable(const torch::Tensor& x) {
  const bool narrow = x.scalar_type() == torch::kBFloat16 || x.scalar_type() == torch::kHalf;
  return x.is_cpu() && narrow ? x.to(torch::kFloat32) : x;
}

/// [B, T, C] -> [ranks, B, S, C], dense.
torch::Tensor by_ranks(const torch::Tensor& x_BTC, int64_t ranks) {
  const int64_t B = x_BTC.size(0), S = x_BTC.size(1) / ranks;
  return x_BTC.reshape({B, ranks, S, x_BTC.size(2)}).transpose(0, 1).contiguous();
}

torch::Tensor gathered(const torch::Tensor& x_BSC, TensorRanks& ranks) {
  const auto table =
      torch::empty({ranks.size(), x_BSC.size(0), x_BSC.size(1), x_BSC.size(2)}, x_BSC.options());
  table[ranks.rank()].copy_(x_BSC);
  ranks.all_gather(table.view({ranks.size(), -1}));
  return table.transpose(0, 1).reshape({x_BSC.size(0), -1, x_BSC.size(2)});
}

torch::Tensor scattered(const torch::Tensor& x_BTC, TensorRanks& ranks) {
  const auto table = by_ranks(x_BTC, ranks.size());
  const auto own = torch::empty_like(table[0]);
  ranks.reduce_scatter(table.view({ranks.size(), -1}), own.view(-1));
  return own;
}

struct CopyToRanks : Function<CopyToRanks> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x,
                               const TensorRanksPtr& ranks) {
    save(context, ranks);
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto sum = dense_copy(gradients[0]);
    saved_ranks(context)->sum(sum);
    return {sum, {}};
  }
};

struct SummedOverRanks : Function<SummedOverRanks> {
  static torch::Tensor forward(AutogradContext*, const torch::Tensor& x,
                               const TensorRanksPtr& ranks) {
    auto sum = dense_copy(x);
    ranks->sum(sum);
    return sum;
  }
  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    return {gradients[0], {}};
  }
};

using Exchange = torch::Tensor (*)(const torch::Tensor& x, TensorRanks& ranks);

template <Exchange forwards, Exchange backwards>
struct Exchanged : Function<Exchanged<forwards, backwards>> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x,
                               const TensorRanksPtr& ranks) {
    save(context, ranks);
    return forwards(x, *ranks);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {backwards(gradients[0], *saved_ranks(context)), {}};
  }
};
using GatherSequence = Exchanged<gathered, scattered>;
using ScatterSequence = Exchanged<scattered, gathered>;

struct ExchangeRows : Function<ExchangeRows> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x,
                               const TensorRanksPtr& ranks, const std::vector<int64_t>& sent,
                               const std::vector<int64_t>& received) {
    save(context, ranks);
    context->saved_data["sent"] = sent;
    context->saved_data["received"] = received;
    return ranks->all_to_all(x.contiguous(), sent, received);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {saved_ranks(context)->all_to_all(gradients[0].contiguous(),
                                             context->saved_data["received"].toIntVector(),
                                             context->saved_data["sent"].toIntVector()),
            {},
            {},
            {}};
  }
};

/// Where in this rank's rows a token is, int64, and whether it is there at all.
struct OwnIndex {
  OwnIndex(const torch::Tensor& tokens, const IndexRange& own)
      : is_own(tokens.ge(own.begin).logical_and(tokens.lt(own.end))),
        index((tokens - own.begin).masked_fill(is_own.logical_not(), 0)) {}
  torch::Tensor is_own;
  torch::Tensor index;
};

}  // namespace

cpu::Places rows_between_layers(const TensorRanksPtr& ranks, int64_t length, bool is_training) {
  if (!ranks || !ranks->divides_sequence()) return {};
  const bool divides = length % ranks->size() == 0;
  TORCH_CHECK(divides || !is_training, "a sequence of ", length, " rows on ", ranks->size(),
              " ranks");
  if (!divides) return {};
  const int64_t here = length / ranks->size();
  return {here, length, here * ranks->rank()};
}

torch::Tensor own_rows(const torch::Tensor& x_T, const cpu::Places& rows) {
  return rows.divided() ? x_T.narrow(-1, rows.first, rows.here) : x_T;
}

torch::Tensor enter_layers(const torch::Tensor& x, const TensorRanksPtr& ranks,
                           const cpu::Places& rows) {
  if (!ranks) return x;
  return rows.divided() ? GatherSequence::apply(x, ranks) : CopyToRanks::apply(x, ranks);
}

torch::Tensor leave_layers(const torch::Tensor& product, const TensorRanksPtr& ranks,
                           const cpu::Places& rows) {
  if (!ranks) return product;
  const auto addend = summable(product);
  return rows.divided() ? ScatterSequence::apply(addend, ranks)
                        : SummedOverRanks::apply(addend, ranks);
}

torch::Tensor exchange_rows(const torch::Tensor& x, const TensorRanksPtr& ranks,
                            const std::vector<int64_t>& sent,
                            const std::vector<int64_t>& received) {
  return ExchangeRows::apply(x, ranks, sent, received);
}

IndexRange own_tokens(int64_t vocab_size, const TensorRanksPtr& ranks) {
  if (!ranks) return {0, vocab_size};
  const int64_t rank = ranks->rank(), size = ranks->size();
  return {vocab_size * rank / size, vocab_size * (rank + 1) / size};
}

torch::Tensor lookup_own(const torch::Tensor& idx_BT, const torch::Tensor& own_rows,
                         const IndexRange& tokens) {
  const OwnIndex own(idx_BT, tokens);
  return at::embedding(own_rows, own.index) * own.is_own.unsqueeze(-1);
}

torch::Tensor in_box(torch::Tensor tensor, const Box& box) {
  for (std::size_t d = 0; d < box.sizes.size(); ++d)
    tensor = tensor.narrow(static_cast<int64_t>(d), box.offsets[d], box.sizes[d]);
  return tensor;
}

torch::Tensor own_part(const torch::Tensor& whole, const TensorLayout& layout) {
  std::vector<torch::Tensor> boxes;
  for (const Box& box : layout.boxes) boxes.push_back(in_box(whole, box));
  return at::cat(boxes);
}

torch::Tensor divided_cross_entropy_(torch::Tensor& logits, const torch::Tensor& targets_n,
                                     const VocabularyShare& share) {
  const auto largest_n1 = logits.amax(1, /*keepdim=*/true);
  share.ranks->largest(largest_n1);
  logits.sub_(largest_n1);
  const OwnIndex own(targets_n.unsqueeze(1), share.tokens);
  const auto target_n1 = logits.gather(1, own.index) * own.is_own;
  logits.exp_();
  const auto sums_2n1 = torch::stack({logits.sum(1, /*keepdim=*/true), target_n1});
  share.ranks->sum(sums_2n1);
  const auto counts_n1 = targets_n.ge(0).unsqueeze(1);
  logits.div_(sums_2n1[0]);
  logits.scatter_add_(1, own.index, own.is_own.to(logits.scalar_type()).neg_());
  logits.mul_(counts_n1);
  return ((sums_2n1[0].log() - sums_2n1[1]) * counts_n1).squeeze(1);
}

// The smallest index of those that have the largest value is the largest negative one.
torch::Tensor divided_argmax(const torch::Tensor& logits, const VocabularyShare& share) {
  const auto [own_n, index_n] = logits.max(1);
  const auto largest_n = own_n.clone();
  share.ranks->largest(largest_n);
  constexpr int64_t kNone = std::numeric_limits<int64_t>::min();
  const auto token_n =
      (-(index_n + share.tokens.begin)).masked_fill(own_n.ne(largest_n), kNone).contiguous();
  share.ranks->largest(token_n);
  return -token_n;
}

torch::Tensor gather_logits(const torch::Tensor& logits, int64_t vocab_size,
                            const VocabularyShare& share) {
  const auto all = torch::zeros({logits.size(0), vocab_size}, logits.options());
  all.narrow(1, share.tokens.begin, share.tokens.size()).copy_(logits);
  share.ranks->sum(all);
  return all;
}

}  // namespace ddp::train
