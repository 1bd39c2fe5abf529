#include "trainer/model/blocks/causal_attention.h"

#include <cmath>
#include <limits>

#include "trainer/model/blocks/attention.h"
#include "trainer/model/ops/block_ops.h"
#include "trainer/model/ops/gpu_ops.h"
#include "trainer/model/ops/llama_ops.h"

namespace ddp::train {
namespace {

/// [.., T, D] with the pairs (i, i + R / 2) of the first R numbers turned by their angles.
torch::Tensor rotated(const torch::Tensor& x, const BlockPass& pass) {
  const int64_t R = 2 * pass.cos.size(-1);
  if (const int64_t left = x.size(-1) - R; left > 0)
    return torch::cat({rotated(x.narrow(-1, 0, R), pass), x.narrow(-1, R, left)}, -1);
  const auto halves = x.chunk(2, -1);
  return torch::cat({halves[0] * pass.cos - halves[1] * pass.sin,
                     halves[1] * pass.cos + halves[0] * pass.sin},
                    -1)
      .to(x.scalar_type());
}

/// [B, K, T, D] -> [B, H, T, D]: each head for a group of query heads.
torch::Tensor for_query_heads(const torch::Tensor& x_BKTD, int64_t heads) {
  const auto sizes = x_BKTD.sizes();
  if (sizes[1] == heads) return x_BKTD;
  return x_BKTD.unsqueeze(2)
      .expand({sizes[0], sizes[1], heads / sizes[1], sizes[2], sizes[3]})
      .reshape({sizes[0], heads, sizes[2], sizes[3]});
}

std::optional<torch::Tensor> if_defined(const torch::Tensor& mask) {
  return mask.defined() ? std::optional(mask) : std::nullopt;
}

/// [B, H, T, D] -> [B, T, H D].
torch::Tensor by_tokens(const torch::Tensor& y_BHTD) {
  return y_BHTD.transpose(1, 2).reshape({y_BHTD.size(0), y_BHTD.size(2), -1});
}

}  // namespace

CausalAttentionImpl::CausalAttentionImpl(const AttentionShape& shape, const LayerOptions& options)
    : shape_(shape),
      fused_cpu_(options.fused_cpu),
      heads_(shape.heads / (options.ranks ? options.ranks->size() : 1)) {
  if (options.ranks) places_ = {heads_, shape.heads, heads_ * options.ranks->rank()};
}

torch::Tensor CausalAttentionImpl::forward(ColumnLinear& qkv, const torch::Tensor& x_BSC,
                                           const BlockPass& pass) {
  const int64_t T = x_BSC.size(1) / pass.rows.here * pass.rows.all;
  if (fused::takes(x_BSC) && takes_kernel(T, pass))
    return by_kernel(qkv->in_float32(x_BSC, pass.rows));
  auto heads = qkv->to_heads(x_BSC, pass.rows, heads_);
  for (auto& x_BTHD : heads) x_BTHD = x_BTHD.transpose(1, 2);
  return by_tokens(attend(heads[0], heads[1], heads[2], pass));
}

torch::Tensor CausalAttentionImpl::rotary(const torch::Tensor& q_BTHD, const torch::Tensor& k_BTKD,
                                          const torch::Tensor& v_BTKD,
                                          const BlockPass& pass) const {
  if (gpu::takes_rotation(q_BTHD, k_BTKD, pass.cos)) {
    const auto [q, k] = gpu::rotated(q_BTHD, k_BTKD, pass.cos, pass.sin);
    return by_tokens(attend(q.transpose(1, 2), k.transpose(1, 2), v_BTKD.transpose(1, 2), pass));
  }
  const bool partly = 2 * pass.cos.size(-1) < q_BTHD.size(-1);
  if (partly || !fused::takes(q_BTHD) || !fused::takes(k_BTKD) || !fused::takes(v_BTKD)) {
    return by_tokens(attend(rotated(q_BTHD.transpose(1, 2), pass),
                            rotated(k_BTKD.transpose(1, 2), pass), v_BTKD.transpose(1, 2), pass));
  }
  const int64_t K = k_BTKD.size(2);
  const int64_t repeat = pass.cache == nullptr ? heads_ / K : 1;  // the cache keeps each head once
  const auto heads_BTED =
      fused::rotated_heads({q_BTHD, k_BTKD, v_BTKD, pass.cos, pass.sin}, repeat);
  if (takes_kernel(q_BTHD.size(1), pass)) return by_kernel(heads_BTED.flatten(2));
  auto parts = heads_BTED.split_with_sizes({heads_, K * repeat, K * repeat}, 2);
  for (auto& part : parts) part = part.transpose(1, 2);
  return by_tokens(attend(parts[0], parts[1], parts[2], pass));
}

bool CausalAttentionImpl::takes_kernel(int64_t length, const BlockPass& pass) const {
  return fused_cpu_ && !shape_.scale && shape_.softcap == 0.0 && pass.is_whole_text() &&
         fused::takes_attention(length, shape_.head_dim);
}

torch::Tensor CausalAttentionImpl::by_kernel(const torch::Tensor& qkv_BTE) const {
  return fused::causal_attention(qkv_BTE, heads_, active_dropout(), places_);
}

torch::Tensor CausalAttentionImpl::attend(const torch::Tensor& q_BHTD, torch::Tensor k_BKTD,
                                          torch::Tensor v_BKTD, const BlockPass& pass) const {
  double dropout = active_dropout();
  if (pass.cache != nullptr) {
    KeyValueCache::Layer& kept = pass.cache->layers[pass.layer];
    k_BKTD = pass.cache->add(kept.keys_BHTD, k_BKTD);
    v_BKTD = pass.cache->add(kept.values_BHTD, v_BKTD);
    if (q_BHTD.size(2) == 1) return attend_to_cache(q_BHTD, k_BKTD, v_BKTD, pass.mask);
    dropout = 0.0;
  }
  const auto k_BHTD = for_query_heads(k_BKTD, heads_);
  const auto v_BHTD = for_query_heads(v_BKTD, heads_);
  // torch's attention would draw the same numbers for the heads of each rank.
  if (shape_.softcap > 0.0 || (dropout > 0.0 && places_.divided())) {
    const int64_t T = q_BHTD.size(2);
    const auto mask = pass.mask.defined()
                          ? pass.mask
                          : torch::ones({T, T}, q_BHTD.options().dtype(torch::kBool)).tril();
    return attend_by_formula(q_BHTD, k_BHTD, v_BHTD, mask, dropout);
  }
  return attention(q_BHTD, k_BHTD, v_BHTD, if_defined(pass.mask), dropout,
                   /*is_causal=*/!pass.mask.defined(), shape_.scale);
}

// The queries of a group attend to their head's keys together, so that these are not repeated.
torch::Tensor CausalAttentionImpl::attend_to_cache(const torch::Tensor& q_BH1D,
                                                   const torch::Tensor& k_BKTD,
                                                   const torch::Tensor& v_BKTD,
                                                   const torch::Tensor& mask_B11T) const {
  const auto q_BKGD = q_BH1D.reshape({q_BH1D.size(0), k_BKTD.size(1), -1, q_BH1D.size(3)});
  const auto y_BKGD = shape_.softcap > 0.0
                          ? attend_by_formula(q_BKGD, k_BKTD, v_BKTD, mask_B11T, 0.0)
                          : attention(q_BKGD, k_BKTD, v_BKTD, if_defined(mask_B11T), 0.0,
                                      /*is_causal=*/false, shape_.scale);
  return y_BKGD.reshape(q_BH1D.sizes());
}

torch::Tensor CausalAttentionImpl::attend_by_formula(const torch::Tensor& q_BHTD,
                                                     const torch::Tensor& k_BHTD,
                                                     const torch::Tensor& v_BHTD,
                                                     const torch::Tensor& mask,
                                                     double dropout) const {
  const double scale = shape_.scale.value_or(1.0 / std::sqrt(static_cast<double>(shape_.head_dim)));
  auto scores_BHTT = at::matmul(q_BHTD * scale, k_BHTD.transpose(-2, -1));
  if (shape_.softcap > 0.0) scores_BHTT = ops::softcapped(scores_BHTT, shape_.softcap);
  if (mask.defined()) {
    scores_BHTT =
        mask.scalar_type() == torch::kBool
            ? scores_BHTT.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity())
            : scores_BHTT + mask;
  }
  const auto shares_BHTT = scores_BHTT.softmax(-1);
  return at::matmul(ops::dropout(shares_BHTT, dropout, places_, /*fused_cpu=*/false), v_BHTD);
}

}  // namespace ddp::train
