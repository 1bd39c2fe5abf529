#include "trainer/data/text/bert_batch.h"

#include <algorithm>

#include "trainer/data/rows.h"

namespace ddp::train {

Batch bert_batch(const std::vector<std::vector<int32_t>>& texts, const BertTokens& tokens,
                 bool pinned, std::span<const int64_t> seconds) {
  std::size_t longest = 0;
  for (const auto& text : texts) longest = std::max(longest, text.size());
  const int64_t columns = static_cast<int64_t>(longest) + kAroundText;
  Rows<int64_t> inputs(texts.size(), {columns}, pinned);
  Rows<bool> mask(texts.size(), {columns}, pinned);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto row = inputs[i];
    row[0] = tokens.first;
    const auto end = std::copy(texts[i].begin(), texts[i].end(), row.begin() + 1);
    *end = tokens.last;
    std::fill(end + 1, row.end(), int64_t{tokens.pad});
    // A text may hold [PAD] itself.
    std::transform(row.begin(), row.end(), mask[i].begin(),
                   [&tokens](int64_t token) { return token != tokens.pad; });
  }
  Batch batch = {{{kInputs, inputs.tensor()}, {kAttentionMask, mask.tensor()}}, 0};
  if (seconds.empty() || !tokens.typed_pairs) return batch;
  Rows<int64_t> types(texts.size(), {columns}, pinned);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto row = types[i];
    std::fill(row.begin(), row.end(), int64_t{0});
    const auto second = row.begin() + 1 + seconds[i];
    std::fill(second, row.begin() + std::ssize(texts[i]) + kAroundText, int64_t{1});
  }
  batch.tensors.emplace(kTokenTypes, types.tensor());
  return batch;
}

}  // namespace ddp::train
