#include "trainer/model/blocks/attention.h"

#include <ATen/SDPBackend.h>
#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include <mutex>

namespace ddp::train {
namespace {

constexpr int64_t kLargestFlashHead = 256;

std::once_flag noted;
std::optional<AttentionCase> first_case;

torch::ScalarType type_of(const torch::Tensor& query) {
  const auto device = query.device().type();
  return at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device)
                                                   : query.scalar_type();
}

const char* why_not_flash(const AttentionCase& attention) {
  if (attention.type == torch::kFloat32)
    return "needs float16 or bfloat16 (trainer_config.use_amp=true)";
  if (attention.has_mask) return "takes no mask";
  if (attention.head_size > kLargestFlashHead) return "takes heads of up to 256";
  return "needs compute capability 8.0";
}

}  // namespace

torch::Tensor attention(const torch::Tensor& query, const torch::Tensor& key,
                        const torch::Tensor& value, const std::optional<torch::Tensor>& mask,
                        double dropout, bool is_causal, std::optional<double> scale) {
  if (query.is_cuda() && torch::GradMode::is_enabled()) {
    std::call_once(noted, [&] {
      const auto type = type_of(query);
      const auto cast = [&](const torch::Tensor& x) { return x.to(type); };
      first_case = {at::_fused_sdp_choice(cast(query), cast(key), cast(value), mask, dropout,
                                          is_causal, scale),
                    type, query.size(-1), mask.has_value()};
    });
  }
  return at::scaled_dot_product_attention(query, key, value, mask, dropout, is_causal, scale);
}

std::string attention_note(const AttentionCase& attention) {
  const auto choice = static_cast<at::SDPBackend>(attention.choice);
  if (choice == at::SDPBackend::flash_attention || choice == at::SDPBackend::cudnn_attention)
    return {};
  return fmt::format("Attention: by {}; flash attention {}",
                     choice == at::SDPBackend::efficient_attention
                         ? "torch's memory-efficient kernel"
                         : "the formula, in several kernels that keep a T x T matrix for each head",
                     why_not_flash(attention));
}

std::string attention_note() { return first_case ? attention_note(*first_case) : std::string(); }

}  // namespace ddp::train
