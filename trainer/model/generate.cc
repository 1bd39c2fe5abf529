#include "trainer/model/generate.h"

#include <algorithm>
#include <utility>

#include "trainer/model/to_device.h"

namespace ddp::train {
namespace {

/// In [0, 1).
double draw(std::mt19937_64& generator) {
  constexpr unsigned kUnusedBits = 11;  // 53 of 64 bits make a double
  constexpr double kUnit = 0x1.0p-53;
  return static_cast<double>(generator() >> kUnusedBits) * kUnit;
}

torch::Tensor tokens_seen(const std::vector<BatchGenerator::Row>& rows, int64_t vocab_size) {
  auto seen_BV = torch::zeros({static_cast<int64_t>(rows.size()), vocab_size}, torch::kBool);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (const int32_t token : rows[row].tokens)
      seen_BV[static_cast<int64_t>(row)][token].fill_(true);
  }
  return seen_BV;
}

}  // namespace

BatchGenerator::BatchGenerator(CausalModel& model, std::vector<Row> rows,
                               const SamplingOptions& options)
    : model_(model),
      rows_(std::move(rows)),
      options_(options),
      device_(model.parameters().front().device()) {
  model_.eval();
  for (const Row& row : rows_) generators_.emplace_back(row.seed);
  if (options_.repetition_penalty != 1.0)
    seen_tokens_ = tokens_seen(rows_, model_.vocab_size()).to(device_);
}

// All contexts, right-aligned, the shorter ones behind padding.
torch::Tensor BatchGenerator::read_all(int64_t longest) {
  const int64_t block = model_.block_size();
  const int64_t width = std::min(longest, block);
  const auto count = static_cast<int64_t>(rows_.size());
  auto idx_BT = torch::zeros({count, width}, torch::kInt64);
  auto padding_B = torch::zeros({count}, torch::kInt64);
  for (int64_t b = 0; b < count; ++b) {
    const auto& tokens = rows_[static_cast<std::size_t>(b)].tokens;
    const int64_t used = std::min<int64_t>(width, static_cast<int64_t>(tokens.size()));
    std::copy(tokens.end() - used, tokens.end(),
              idx_BT.data_ptr<int64_t>() + (b + 1) * width - used);
    padding_B[b] = width - used;
  }
  const bool padded = padding_B.any().item<bool>();
  const int64_t capacity =
      longest > block ? width : std::min(block, width + options_.max_new_tokens);
  cache_ = model_.new_cache(capacity, padded ? to_device(padding_B, device_) : torch::Tensor());
  return model_.next_logits(to_device(idx_BT, device_), *cache_);
}

torch::Tensor BatchGenerator::read_last() {
  std::vector<int64_t> last;
  for (const Row& row : rows_) last.push_back(row.tokens.back());
  const auto idx_B1 = torch::tensor(last, torch::kInt64).unsqueeze(1);
  return model_.next_logits(to_device(idx_B1, device_), *cache_);
}

torch::Tensor BatchGenerator::read() {
  int64_t longest = 0;
  for (const Row& row : rows_) longest = std::max(longest, static_cast<int64_t>(row.tokens.size()));
  return !cache_ || longest > model_.block_size() ? read_all(longest) : read_last();
}

std::vector<double> BatchGenerator::draws() {
  std::vector<double> result;
  for (auto& generator : generators_) result.push_back(draw(generator));
  return result;
}

std::vector<int32_t> BatchGenerator::next() {
  const torch::InferenceMode inference;
  const auto scores_BV = process_logits(read(), seen_tokens_, options_);
  const auto tokens_B = options_.greedy ? scores_BV.argmax(-1) : draw_tokens(scores_BV, draws());
  if (seen_tokens_.defined()) seen_tokens_.scatter_(1, tokens_B.unsqueeze(1), true);
  const auto drawn = tokens_B.to(torch::kCPU, torch::kInt32).contiguous();
  const int32_t* first = drawn.data_ptr<int32_t>();
  std::vector<int32_t> result(first, first + drawn.numel());
  for (std::size_t row = 0; row < rows_.size(); ++row) rows_[row].tokens.push_back(result[row]);
  return result;
}

TurnGenerator::TurnGenerator(CausalModel& model, const SamplingOptions& options)
    : model_(model),
      options_(options),
      device_(model.parameters().front().device()),
      generator_(options.seed),
      cache_(model.new_cache(model.block_size())) {
  model_.eval();
}

// The last token is read in any case: its logits are what comes next.
void TurnGenerator::set_text(std::vector<int32_t> tokens) {
  const auto same = std::mismatch(tokens.begin(), tokens.end() - 1, tokens_.begin(), tokens_.end());
  cache_.length = std::min<int64_t>(cache_.length, same.first - tokens.begin());
  tokens_ = std::move(tokens);
}

bool TurnGenerator::is_full() const { return std::ssize(tokens_) > model_.block_size(); }

int32_t TurnGenerator::next() {
  const torch::InferenceMode inference;
  const std::vector<int64_t> unread(tokens_.begin() + cache_.length, tokens_.end());
  const auto idx_1T = to_device(torch::tensor(unread, torch::kInt64).unsqueeze(0), device_);
  torch::Tensor seen_1V;
  if (options_.repetition_penalty != 1.0)
    seen_1V = tokens_seen({{tokens_}}, model_.vocab_size()).to(device_);
  const auto scores_1V = process_logits(model_.next_logits(idx_1T, cache_), seen_1V, options_);
  const auto token =
      options_.greedy ? scores_1V.argmax(-1) : draw_tokens(scores_1V, {draw(generator_)});
  tokens_.push_back(token.item().to<int32_t>());
  return tokens_.back();
}

void generate(CausalModel& model, std::vector<int32_t> prompt, const SamplingOptions& options,
              const std::function<void(int64_t)>& emit) {
  BatchGenerator generator(model, {{std::move(prompt), options.seed}}, options);
  for (int64_t i = 0; i < options.max_new_tokens; ++i) emit(generator.next().front());
}

}  // namespace ddp::train
