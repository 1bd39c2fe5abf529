#include "trainer/task/generate/choice_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>

#include "trainer/runtime/error.h"
#include "trainer/runtime/with_key.h"
#include "trainer/tokenizer/char_tokenizer.h"

namespace ddp::train {
namespace {

/// What the model reads of one choice.
struct ChoiceRow {
  std::vector<int32_t> tokens;  ///< Context and choice; at most one more than the model's context.
  std::size_t of_choice = 0;    ///< How many of them, at the end, are the choice's.
};

/// As lm-eval's `_encode_pair`: spaces at the context's end belong to what follows.
ChoiceRow encode_choice(const Tokenizer& tokenizer, std::string context, std::string choice,
                        int64_t block_size) {
  const std::size_t end = context.find_last_not_of(" \t\n\r\f\v") + 1;
  choice = context.substr(end) + " " + choice;
  context.resize(end);
  ChoiceRow row{tokenizer.encode(context + choice), 0};
  const std::size_t before = tokenizer.encode(context).size();
  if (before >= row.tokens.size() || before == 0)
    throw UserError("the context or a choice has no tokens");
  row.of_choice = row.tokens.size() - before;
  const auto most = static_cast<std::size_t>(block_size);
  if (row.of_choice > most) {
    throw UserError(fmt::format("a choice has {} tokens, more than the model's context of {}",
                                row.of_choice, block_size));
  }
  if (row.tokens.size() > most + 1)
    row.tokens.erase(row.tokens.begin(), row.tokens.end() - static_cast<int64_t>(most + 1));
  return row;
}

std::vector<ChoiceRow> encode_suite(const Tokenizer& tokenizer, const ChoiceSuite& suite,
                                    int64_t block_size) {
  std::vector<ChoiceRow> rows;
  for (const ChoiceItem& item : suite.items) {
    with_key(fmt::format("--suite: {}:{}", suite.path, item.line), [&] {
      for (const std::string& choice : item.choices)
        rows.push_back(encode_choice(tokenizer, item.context, choice, block_size));
    });
  }
  return rows;
}

/// The longest first, so that rows of a batch need little padding and memory suffices or does not
/// at once.
std::vector<std::size_t> by_length(const std::vector<ChoiceRow>& rows) {
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return rows[a].tokens.size() > rows[b].tokens.size();
  });
  return order;
}

/// float64 [B]; padding follows a row, where no target sees it.
torch::Tensor sums_of(CausalModel& model, const std::vector<ChoiceRow>& rows,
                      std::span<const std::size_t> batch) {
  const auto B = std::ssize(batch);
  const auto T = static_cast<int64_t>(rows[batch.front()].tokens.size()) - 1;
  auto idx_BT = torch::zeros({B, T}, torch::kInt64);
  auto targets_BT = torch::full({B, T}, -1, torch::kInt64);
  auto idx = idx_BT.accessor<int64_t, 2>();
  auto targets = targets_BT.accessor<int64_t, 2>();
  for (int64_t b = 0; b < B; ++b) {
    const auto& [tokens, of_choice] = rows[batch[static_cast<std::size_t>(b)]];
    for (std::size_t t = 0; t + 1 < tokens.size(); ++t) {
      idx[b][static_cast<int64_t>(t)] = tokens[t];
      if (t + 1 + of_choice >= tokens.size()) targets[b][static_cast<int64_t>(t)] = tokens[t + 1];
    }
  }
  const auto device = model.parameters().front().device();
  const auto losses_BT = model.target_losses(idx_BT.to(device), targets_BT.to(device));
  return -losses_BT.to(torch::kFloat64).sum(1).to(torch::kCPU);
}

ItemShare share_of(const std::vector<double>& right) {
  const auto n = static_cast<double>(right.size());
  ItemShare share{std::accumulate(right.begin(), right.end(), 0.0) / n, std::nullopt};
  if (right.size() < 2) return share;
  const double squares = std::accumulate(
      right.begin(), right.end(), 0.0,
      [&](double sum, double x) { return sum + (x - share.mean) * (x - share.mean); });
  share.stderr_of_mean = std::sqrt(squares / (n - 1)) / std::sqrt(n);
  return share;
}

std::size_t greatest(const std::vector<double>& values) {
  return static_cast<std::size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

}  // namespace

ChoiceScores scores_of(const ChoiceSuite& suite,
                       const std::vector<std::vector<double>>& log_likelihoods) {
  std::vector<double> right, right_norm;
  for (std::size_t i = 0; i < suite.items.size(); ++i) {
    const ChoiceItem& item = suite.items[i];
    std::vector<double> per_character = log_likelihoods[i];
    for (std::size_t k = 0; k < per_character.size(); ++k)
      per_character[k] /= static_cast<double>(count_characters(item.choices[k]));
    right.push_back(greatest(log_likelihoods[i]) == item.answer ? 1.0 : 0.0);
    right_norm.push_back(greatest(per_character) == item.answer ? 1.0 : 0.0);
  }
  return {share_of(right), share_of(right_norm)};
}

std::vector<std::vector<double>> choice_log_likelihoods(CausalModel& model,
                                                        const Tokenizer& tokenizer,
                                                        const ChoiceSuite& suite,
                                                        int64_t batch_size, ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  model.eval();
  const auto rows = encode_suite(tokenizer, suite, model.block_size());
  const auto order = by_length(rows);
  auto sums = torch::zeros({std::ssize(rows)}, torch::kFloat64);
  const auto size = static_cast<std::size_t>(batch_size);
  const auto ranks = static_cast<std::size_t>(group.size());
  for (std::size_t batch = static_cast<std::size_t>(group.rank()); batch * size < order.size();
       batch += ranks) {
    const auto members =
        std::span(order).subspan(batch * size, std::min(size, order.size() - batch * size));
    const auto of_batch = sums_of(model, rows, members);
    for (std::size_t b = 0; b < members.size(); ++b)
      sums[static_cast<int64_t>(members[b])] = of_batch[static_cast<int64_t>(b)];
  }
  group.all_reduce_sum(sums);  // each entry is non-zero on one rank only: exact
  const auto* next = sums.const_data_ptr<double>();
  std::vector<std::vector<double>> result;
  for (const ChoiceItem& item : suite.items) {
    result.emplace_back(next, next + item.choices.size());
    next += item.choices.size();
  }
  return result;
}

}  // namespace ddp::train
