#include "trainer/data/chat/preference_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "trainer/data/rows.h"
#include "trainer/runtime/files/sha256.h"

namespace ddp::train {
namespace {

std::string digest_of_pairs(const std::vector<EncodedPair>& pairs, bool with_prompts) {
  Sha256 sum;
  sum.update(fmt::format("pairs {}", with_prompts));
  for (const EncodedPair& pair : pairs) {
    sum.update(fmt::format("{} {} {}", pair.prompt, pair.chosen.size(), pair.rejected.size()));
    for (const auto* tokens : {&pair.chosen, &pair.rejected})
      sum.update(tokens->data(), tokens->size() * sizeof(int32_t));
  }
  return sum.hex();
}

/// The rows of a batch, one after the other.
struct PairRows {
  std::vector<int64_t> targets;
  std::vector<int64_t> positions;
  std::vector<float> of_answer;
  std::vector<float> lengths;

  void add(std::span<int64_t> inputs, std::size_t row, const std::vector<int32_t>& tokens,
           std::size_t prompt, bool with_prompt) {
    std::ranges::fill(inputs, 0);
    for (std::size_t t = 0; t + 1 < tokens.size(); ++t) {
      inputs[t] = tokens[t];
      const bool of_prompt = t + 1 < prompt;
      if (of_prompt && !with_prompt) continue;
      targets.push_back(tokens[t + 1]);
      positions.push_back(static_cast<int64_t>(row * inputs.size() + t));
      of_answer.push_back(of_prompt ? 0.0F : 1.0F);
    }
    lengths.push_back(static_cast<float>(tokens.size() - prompt));
  }
};

}  // namespace

PairSamples::PairSamples(std::vector<EncodedPair> pairs, int64_t block_size, bool with_prompts)
    : with_prompts_(with_prompts) {
  const auto most = static_cast<std::size_t>(block_size + 1);
  counts_.pairs = std::ssize(pairs);
  for (EncodedPair& pair : pairs) {
    for (const auto* tokens : {&pair.chosen, &pair.rejected})
      counts_.lengths.add(std::ssize(*tokens));
    if (pair.prompt >= most) {
      ++counts_.without_answer;
      continue;
    }
    for (auto* tokens : {&pair.chosen, &pair.rejected}) {
      if (tokens->size() <= most) continue;
      ++counts_.truncated;
      counts_.cut_tokens += static_cast<int64_t>(tokens->size() - most);
      tokens->resize(most);
    }
    pairs_.push_back(std::move(pair));
  }
  reference_ = torch::zeros({size(), 2});
  fingerprint_ = digest_of_pairs(pairs_, with_prompts_);
}

Batch PairSamples::collate(const BatchRequest& request) const {
  const std::size_t count = request.samples.size();
  const auto pair_of_row = [&](std::size_t row) -> const EncodedPair& {
    return pairs_[static_cast<std::size_t>(request.samples[row % count])];
  };
  const auto tokens_of_row = [&](std::size_t row) -> const std::vector<int32_t>& {
    return row < count ? pair_of_row(row).chosen : pair_of_row(row).rejected;
  };
  std::size_t longest = 2;
  for (std::size_t row = 0; row < 2 * count; ++row)
    longest = std::max(longest, tokens_of_row(row).size());
  Rows<int64_t> inputs(2 * count, {static_cast<int64_t>(longest - 1)}, request.pinned);
  Rows<float> reference(count, {2}, request.pinned);
  PairRows rows;
  for (std::size_t row = 0; row < 2 * count; ++row)
    rows.add(inputs[row], row, tokens_of_row(row), pair_of_row(row).prompt,
             with_prompts_ && row < count);
  const float* known = reference_.const_data_ptr<float>();
  for (std::size_t row = 0; row < count; ++row)
    std::copy_n(known + 2 * request.samples[row], 2, reference[row].begin());
  Batch batch{{{kInputs, inputs.tensor()},
               {kTargets, tensor_of<int64_t>(rows.targets, request.pinned)},
               {kTargetPositions, tensor_of<int64_t>(rows.positions, request.pinned)},
               {kAnswerLengths, tensor_of<float>(rows.lengths, request.pinned)},
               {kReference, reference.tensor()}},
              static_cast<int64_t>(count)};
  if (with_prompts_) batch.tensors[kOfAnswer] = tensor_of<float>(rows.of_answer, request.pinned);
  return batch;
}

}  // namespace ddp::train
