// The tokens that a masked language model puts in place of [MASK].
#include <fmt/format.h>

#include <algorithm>

#include "trainer/runtime/error.h"
#include "trainer/task/masked_lm.h"

namespace ddp::train {
namespace {

/// [CLS] text [SEP], with a mask in it.
std::vector<int64_t> tokens_with_masks(const Tokenizer& tokenizer, const MaskingTokens& special,
                                       std::string_view text, int64_t positions) {
  const auto encoded = tokenizer.encode(text);
  const BertTokenNames& names = token_names_of(tokenizer);
  if (encoded.empty())
    throw UserError(fmt::format("is empty; give a text with {} in it", names.mask));
  if (std::find(encoded.begin(), encoded.end(), special.mask) == encoded.end())
    throw UserError(
        fmt::format("has no {}; write it where a token is to be predicted", names.mask));
  std::vector<int64_t> tokens = {special.first};
  tokens.insert(tokens.end(), encoded.begin(), encoded.end());
  tokens.push_back(special.last);
  if (static_cast<int64_t>(tokens.size()) > positions) {
    throw UserError(fmt::format("has {} tokens with {} and {}, the model takes {}; shorten it",
                                tokens.size(), names.first, names.last, positions));
  }
  return tokens;
}

}  // namespace

std::vector<TokenGuesses> fill_masks(BertForMaskedLmImpl& model, const Tokenizer& tokenizer,
                                     std::string_view text, int64_t most) {
  const torch::NoGradGuard no_grad;
  const MaskingTokens special = masking_tokens(tokenizer);
  const auto tokens = tokens_with_masks(tokenizer, special, text, model.positions());
  const auto device = model.parameters().front().device();
  const auto tokens_BT = torch::tensor(tokens).unsqueeze(0).to(device);
  const auto masks_M = tokens_BT.eq(special.mask).reshape({-1}).nonzero().view({-1});
  const auto logits_MV = model.logits_at(tokens_BT, {}, masks_M);
  const auto chances_MV = logits_MV.to(torch::kCPU, torch::kFloat64).softmax(-1);
  const auto [chances, ids] = chances_MV.topk(std::min(most, tokenizer.size()), -1);
  std::vector<TokenGuesses> guesses;
  for (int64_t m = 0; m < ids.size(0); ++m) {
    TokenGuesses& here = guesses.emplace_back();
    for (int64_t k = 0; k < ids.size(1); ++k) {
      const auto token = static_cast<int32_t>(ids[m][k].item<int64_t>());
      here.emplace_back(tokenizer.decode(token), chances[m][k].item<double>());
    }
  }
  return guesses;
}

}  // namespace ddp::train
