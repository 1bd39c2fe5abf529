#include "trainer/data/text/masked_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "trainer/runtime/seed.h"
#include "trainer/runtime/files/sha256.h"

namespace ddp::train {
namespace {

constexpr int64_t kNoTarget = -1;

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

SampleSpec MaskedLines::spec() const {
  const RowSpec row{c10::kLong, {options_.block_size}};
  return {row, row};
}

void MaskedLines::fill(int64_t index, int64_t epoch, const SampleRow& row) const {
  constexpr std::size_t kTenths = 10;
  constexpr std::size_t kHidden = 8;
  const auto inputs = numbers_at(row.inputs, options_.block_size);
  const auto targets = numbers_at(row.targets, options_.block_size);
  std::fill(targets.begin(), targets.end(), kNoTarget);
  const auto line = lines_[first_ + index];
  write_bert_row(line, tokens_, inputs);

  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const auto token = static_cast<std::size_t>(line[i]);
    if (token < is_ordinary_.size() && is_ordinary_[token]) positions.push_back(i + 1);
  }
  const int64_t seen_in = options_.every_epoch_anew ? epoch : 0;
  KeyedNumbers numbers(masking_seed(options_.seed, seen_in, index));
  const int64_t count = masked_count(static_cast<int64_t>(positions.size()), options_.share);
  choose(positions, static_cast<std::size_t>(count), numbers);
  for (const std::size_t at : positions) {
    targets[at] = inputs[at];
    const std::size_t tenth = numbers.below(kTenths);
    const std::size_t random = numbers.below(tokens_.ordinary.size());
    if (tenth < kHidden) inputs[at] = tokens_.mask;
    if (tenth == kHidden) inputs[at] = tokens_.ordinary[random];
  }
}

}  // namespace ddp::train
