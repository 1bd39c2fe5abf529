// One text as BERT reads it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ddp::train {

/// The tokens around a text.
struct BertTokens {
  int32_t pad = 0;
  int32_t first = 0;  ///< [CLS]
  int32_t last = 0;   ///< [SEP]
};

inline constexpr int64_t kAroundText = 2;  ///< [CLS] and [SEP]

/// [CLS] text [SEP] and padding up to the end of `row`, which has room for the first three.
inline void write_bert_row(std::span<const int32_t> text, const BertTokens& tokens,
                           std::span<int64_t> row) {
  row[0] = tokens.first;
  const auto end = std::copy(text.begin(), text.end(), row.begin() + 1);
  *end = tokens.last;
  std::fill(end + 1, row.end(), int64_t{tokens.pad});
}

/// The row of int64 at `row`, of a SampleRow.
inline std::span<int64_t> numbers_at(void* row, int64_t count) {
  return {static_cast<int64_t*>(row), static_cast<std::size_t>(count)};
}

}  // namespace ddp::train
