#include "trainer/data/text/masked_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trainer/data/rows.h"
#include "trainer/runtime/files/sha256.h"
#include "trainer/runtime/seed.h"

namespace ddp::train {
namespace {

/// Numbers that depend on the key alone.
class KeyedNumbers {
 public:
  explicit KeyedNumbers(uint64_t key) : key_(key) {}

  /// 0 <= result < count; the bias of at most count / 2^64 does not show.
  std::size_t below(std::size_t count) {
    return static_cast<std::size_t>(mix64(key_, next_++) % static_cast<uint64_t>(count));
  }

 private:
  uint64_t key_;
  uint64_t next_ = 0;
};

/// The first `count` of the positions, shuffled: Fisher and Yates, broken off.
void choose(std::vector<std::size_t>& positions, std::size_t count, KeyedNumbers& numbers) {
  for (std::size_t i = 0; i < count; ++i)
    std::swap(positions[i], positions[i + numbers.below(positions.size() - i)]);
  positions.resize(count);
}

// What an evaluation hides is the same every time, so that it is a part of its data.
std::string fingerprint_of(const TextLines& lines, int64_t first, int64_t last,
                           const MaskingOptions& options) {
  if (options.every_epoch_anew) return lines.fingerprint();
  return sha256_hex(fmt::format("{} {} {} {}", lines.fingerprint(), first, last, options.share));
}

}  // namespace

int64_t masked_count(int64_t ordinary, double share) {
  if (ordinary == 0) return 0;
  return std::max<int64_t>(1, std::llround(static_cast<double>(ordinary) * share));
}

MaskedLines::MaskedLines(const TextLines& lines, int64_t first, int64_t last,
                         const MaskingTokens& tokens, const MaskingOptions& options)
    : lines_(lines),
      first_(first),
      last_(last),
      tokens_(tokens),
      options_(options),
      fingerprint_(fingerprint_of(lines, first, last, options)) {
  const int32_t largest = *std::max_element(tokens.ordinary.begin(), tokens.ordinary.end());
  is_ordinary_.resize(static_cast<std::size_t>(largest) + 1);
  for (const int32_t token : tokens.ordinary) is_ordinary_[static_cast<std::size_t>(token)] = true;
}

TargetCount MaskedLines::targets() const {
  return {masked_count(options_.block_size - kAroundText, options_.share), /*always=*/false};
}

Batch MaskedLines::collate(const BatchRequest& request) const {
  std::vector<std::vector<int32_t>> lines;
  for (const int64_t sample : request.samples) lines.push_back(lines_[first_ + sample]);
  Batch batch = bert_batch(lines, tokens_, request.pinned);
  const torch::Tensor& inputs_BT = batch[kInputs];
  const int64_t columns = inputs_BT.size(1);
  auto* row = inputs_BT.mutable_data_ptr<int64_t>();
  std::vector<int64_t> positions, targets;
  for (std::size_t i = 0; i < lines.size(); ++i, row += columns) {
    for (const HiddenToken& hidden :
         hide(request.samples[i], request.epoch, {row, lines[i].size() + kAroundText})) {
      positions.push_back(static_cast<int64_t>(i) * columns + static_cast<int64_t>(hidden.column));
      targets.push_back(hidden.token);
    }
  }
  batch.tensors.emplace(kTargetPositions, tensor_of<int64_t>(positions, request.pinned));
  batch.tensors.emplace(kTargets, tensor_of<int64_t>(targets, request.pinned));
  batch.target_count = std::ssize(targets);
  return batch;
}

std::vector<MaskedLines::HiddenToken> MaskedLines::hide(int64_t index, int64_t epoch,
                                                        std::span<int64_t> row) const {
  constexpr std::size_t kTenths = 10;
  constexpr std::size_t kHidden = 8;
  std::vector<std::size_t> columns;
  for (std::size_t column = 1; column + 1 < row.size(); ++column) {
    const auto token = static_cast<std::size_t>(row[column]);
    if (token < is_ordinary_.size() && is_ordinary_[token]) columns.push_back(column);
  }
  const int64_t seen_in = options_.every_epoch_anew ? epoch : 0;
  KeyedNumbers numbers(masking_seed(options_.seed, seen_in, index));
  const int64_t count = masked_count(static_cast<int64_t>(columns.size()), options_.share);
  choose(columns, static_cast<std::size_t>(count), numbers);
  std::vector<HiddenToken> hidden;
  for (const std::size_t column : columns) {
    hidden.push_back({column, row[column]});
    const std::size_t tenth = numbers.below(kTenths);
    const std::size_t random = numbers.below(tokens_.ordinary.size());
    if (tenth < kHidden) row[column] = tokens_.mask;
    if (tenth == kHidden) row[column] = tokens_.ordinary[random];
  }
  std::ranges::sort(hidden, {}, &HiddenToken::column);
  return hidden;
}

}  // namespace ddp::train
