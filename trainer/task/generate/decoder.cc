#include "trainer/task/generate/decoder.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "trainer/model/sampling.h"
#include "trainer/model/to_device.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

/// In [0, 1).
double draw(std::mt19937_64& generator) {
  constexpr unsigned kUnusedBits = 11;  // 53 of 64 bits make a double
  constexpr double kUnit = 0x1.0p-53;
  return static_cast<double>(generator() >> kUnusedBits) * kUnit;
}

[[noreturn]] void refuse_numbers() {
  throw RunError("the model's logits are not finite, so it is useless; use an earlier snapshot");
}

}  // namespace

void GraphUse::add(const GraphUse& other) {
  replays += other.replays;
  if (why_not.empty()) why_not = other.why_not;
}

Decoder::Decoder(CausalModel& model, const SamplingOptions& options,
                 const std::vector<uint64_t>& seeds)
    : model_(model),
      options_(options),
      device_(model.parameters().front().device()),
      graphs_(options.cuda_graphs && device_.is_cuda() && !model_.waits_for_device()) {
  for (const uint64_t seed : seeds) generators_.emplace_back(seed);
  const auto rows = static_cast<int64_t>(seeds.size());
  draws_B_ = torch::zeros({rows}, torch::TensorOptions(torch::kFloat64).device(device_));
  drawn_B1_ = torch::zeros({rows, 1}, torch::TensorOptions(torch::kInt64).device(device_));
  if (options_.repetition_penalty != 1.0)
    seen_BV_ = torch::zeros({rows, model_.vocab_size()},
                            torch::TensorOptions(torch::kBool).device(device_));
}

void Decoder::set_cache(KeyValueCache cache) {
  cache_ = std::move(cache);
  stepped_room_ = recorded_room_ = 0;
}

void Decoder::set_seen(const std::vector<std::vector<int32_t>>& texts) {
  if (!seen_BV_.defined()) return;
  auto seen_BV = torch::zeros(seen_BV_.sizes(), torch::kBool);
  for (std::size_t row = 0; row < texts.size(); ++row) {
    for (const int32_t token : texts[row]) seen_BV[static_cast<int64_t>(row)][token].fill_(true);
  }
  seen_BV_.copy_(seen_BV);
}

std::vector<int32_t> Decoder::read(const torch::Tensor& idx_BT) {
  const auto idx = to_device(idx_BT, device_);
  if (idx.size(1) == 1) {
    drawn_B1_.copy_(idx);
    return read_drawn();
  }
  take_draws();
  draw_after(idx);
  return drawn();
}

std::vector<int32_t> Decoder::read_drawn() {
  take_draws();
  step();
  return drawn();
}

void Decoder::take_draws() {
  if (options_.greedy) return;
  std::vector<double> draws;
  for (auto& generator : generators_) draws.push_back(draw(generator));
  const auto host_B = torch::tensor(draws, torch::kFloat64);
  draws_B_.copy_(device_.is_cuda() ? host_B.pin_memory() : host_B, /*non_blocking=*/true);
}

void Decoder::draw_after(const torch::Tensor& idx_BT) {
  const auto scores_BV = process_logits(model_.next_logits(idx_BT, *cache_), seen_BV_, options_);
  if (device_.is_cpu() && scores_BV.isnan().any().item<bool>()) refuse_numbers();
  const auto tokens_B1 =
      (options_.greedy ? scores_BV.argmax(-1) : draw_tokens(scores_BV, draws_B_)).unsqueeze(1);
  // A GPU is not waited for: a token beyond the vocabulary, as draw_tokens() has it, means NaN.
  if (options_.greedy && !device_.is_cpu())
    tokens_B1.masked_fill_(scores_BV.gather(1, tokens_B1).isnan(), model_.vocab_size());
  if (seen_BV_.defined()) seen_BV_.scatter_(1, tokens_B1.clamp_max(model_.vocab_size() - 1), true);
  drawn_B1_.copy_(tokens_B1);
}

void Decoder::step() {
  const bool fits = cache_->length < std::min(cache_->room, cache_->capacity);
  const bool rehearsed = fits && stepped_room_ == cache_->room;
  if (!graphs_ || !rehearsed) {
    draw_after(drawn_B1_);
    stepped_room_ = cache_->room;
    return;
  }
  if (recorded_room_ == cache_->room)
    ++cache_->length;
  else if (!record())
    return draw_after(drawn_B1_);
  graph_->replay();
  ++use_.replays;
}

/// The host counts the token as read; the device will when the graph is replayed.
bool Decoder::record() {
  const int64_t length = cache_->length;
  try {
    graph_ = loaded_cuda_module()->capture([this] { draw_after(drawn_B1_); }, {}, graph_.get());
  } catch (const std::exception& error) {
    const std::string text = error.what();
    use_.why_not = text.substr(0, text.find('\n'));
    graphs_ = false;
    graph_.reset();
    cache_->length = length;
    return false;
  }
  recorded_room_ = cache_->room;
  return true;
}

std::vector<int32_t> Decoder::drawn() const {
  auto tokens_B1 = drawn_B1_;
  if (device_.is_cuda()) {
    const auto page_locked = torch::TensorOptions(torch::kInt64).pinned_memory(true);
    tokens_B1 = torch::empty(drawn_B1_.sizes(), page_locked);
    tokens_B1.copy_(drawn_B1_, /*non_blocking=*/true);
    c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).synchronize();
  }
  const auto* const first = tokens_B1.const_data_ptr<int64_t>();
  std::vector<int32_t> result;
  for (int64_t row = 0; row < tokens_B1.numel(); ++row) {
    if (first[row] >= model_.vocab_size()) refuse_numbers();  // drawn among NaN
    result.push_back(static_cast<int32_t>(first[row]));
  }
  return result;
}

}  // namespace ddp::train
