#include "trainer/task/generate/generate.h"

#include <algorithm>
#include <utility>

#include "trainer/model/to_device.h"

namespace ddp::train {
namespace {

std::vector<uint64_t> seeds_of(const std::vector<BatchGenerator::Row>& rows) {
  std::vector<uint64_t> seeds;
  for (const auto& row : rows) seeds.push_back(row.seed);
  return seeds;
}

}  // namespace

BatchGenerator::BatchGenerator(CausalModel& model, std::vector<Row> rows,
                               const SamplingOptions& options)
    : model_(model),
      rows_(std::move(rows)),
      max_new_tokens_(options.max_new_tokens),
      decoder_(model, options, seeds_of(rows_)) {
  model_.eval();
  std::vector<std::vector<int32_t>> texts;
  for (const Row& row : rows_) texts.push_back(row.tokens);
  decoder_.set_seen(texts);
}

// All contexts, right-aligned, the shorter ones after padding.
std::vector<int32_t> BatchGenerator::read_all(int64_t longest) {
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
  const int64_t capacity = longest > block ? width : std::min(block, width + max_new_tokens_);
  const auto device = model_.parameters().front().device();
  decoder_.set_cache(
      model_.new_cache(capacity, padded ? to_device(padding_B, device) : torch::Tensor()));
  return decoder_.read(idx_BT);
}

std::vector<int32_t> BatchGenerator::next() {
  const torch::InferenceMode inference;
  int64_t longest = 0;
  for (const Row& row : rows_) longest = std::max(longest, static_cast<int64_t>(row.tokens.size()));
  auto result = !decoder_.cache() || longest > model_.block_size() ? read_all(longest)
                                                                   : decoder_.read_drawn();
  for (std::size_t row = 0; row < rows_.size(); ++row) rows_[row].tokens.push_back(result[row]);
  return result;
}

TurnGenerator::TurnGenerator(CausalModel& model, const SamplingOptions& options)
    : model_(model), decoder_(model, options, {options.seed}) {
  model_.eval();
  decoder_.set_cache(model.new_cache(model.block_size()));
}

// The last token is read in any case: its logits are what comes next.
void TurnGenerator::set_text(std::vector<int32_t> tokens) {
  const auto same = std::mismatch(tokens.begin(), tokens.end() - 1, tokens_.begin(), tokens_.end());
  KeyValueCache& cache = *decoder_.cache();
  cache.shorten(
      std::min<int64_t>(cache.length, model_.prompt_tokens() + (same.first - tokens.begin())));
  decoder_.set_seen({tokens});
  tokens_ = std::move(tokens);
  drawn_ = false;
}

bool TurnGenerator::is_full() const { return std::ssize(tokens_) > model_.block_size(); }

int32_t TurnGenerator::next() {
  const torch::InferenceMode inference;
  const int64_t read = std::max<int64_t>(0, decoder_.cache()->length - model_.prompt_tokens());
  const std::vector<int64_t> unread(tokens_.begin() + read, tokens_.end());
  const bool drawn = std::exchange(drawn_, true);
  tokens_.push_back((drawn ? decoder_.read_drawn()
                           : decoder_.read(torch::tensor(unread, torch::kInt64).unsqueeze(0)))
                        .front());
  return tokens_.back();
}

void generate(CausalModel& model, std::vector<int32_t> prompt, const SamplingOptions& options,
              const std::function<void(int64_t)>& emit) {
  BatchGenerator generator(model, {{std::move(prompt), options.seed}}, options);
  for (int64_t i = 0; i < options.max_new_tokens; ++i) emit(generator.next().front());
}

}  // namespace ddp::train
