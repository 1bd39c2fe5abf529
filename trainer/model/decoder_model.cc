#include "trainer/model/decoder_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "trainer/model/blocks/activation_checkpoint.h"
#include "trainer/model/blocks/experts.h"
#include "trainer/model/blocks/layer_seeds.h"
#include "trainer/model/lora.h"

namespace ddp::train {
namespace {

constexpr const char* kHead = "lm_head";

/// `blocks` without those that `part` lacks, in whose places are empty modules: the others keep
/// their numbers.
torch::nn::ModuleList kept_blocks(const torch::nn::ModuleListImpl& blocks, const ModelPart& part) {
  torch::nn::ModuleList kept;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (part.has(static_cast<int64_t>(i)))
      kept->push_back(blocks.ptr(i));
    else
      kept->push_back(std::make_shared<torch::nn::IdentityImpl>());
  }
  return kept;
}

/// Seeded per layer as well, so that stages draw what one process does.
bool drops_in_adapters(const torch::nn::ModuleListImpl& blocks) {
  const auto modules = blocks.modules(/*include_self=*/false);
  return std::any_of(modules.begin(), modules.end(), [](const auto& module) {
    const auto* const dropout = module->template as<torch::nn::DropoutImpl>();
    return dropout != nullptr && dropout->options.p() > 0.0;
  });
}

/// `block` with less memory. The sums of the routers go through it with the hidden states.
ResidualStream checkpointed(DecoderBlock* block, const ResidualStream& stream,
                            const BlockPass& pass, int64_t n_expert) {
  if (pass.load == nullptr)
    return {checkpoint([block, pass](const torch::Tensor& x) { return block->forward(x, pass); },
                       stream.sum(), block->parameters())};
  const auto forward = [block, pass, n_expert](const torch::Tensor& x) {
    RouterLoad load(n_expert);
    BlockPass with_load = pass;
    with_load.load = &load;
    const auto y_BSC = block->forward(load.take_from(x), with_load);
    return load.append_to(y_BSC);
  };
  return {pass.load->take_from(
      checkpoint(forward, pass.load->append_to(stream.sum()), block->parameters()))};
}

torch::Tensor take_last_rows(torch::nn::Module& layer, const torch::Tensor& table, int64_t count) {
  const torch::NoGradGuard no_grad;
  const auto last = table.narrow(0, table.size(0) - count, count);
  const auto rows = layer.register_parameter(kRowsOfTokens, last.clone());
  last.zero_();
  return rows;
}

}  // namespace

DecoderModel::DecoderModel(Options options, const Design& design)
    : CausalModel(std::move(options)),
      design_(design),
      stack_(register_module(design.stack, std::make_shared<torch::nn::Module>())),
      table_(stack_->register_module(design.table,
                                     VocabEmbedding(vocab_size(), design.n_embd, design.layers))) {}

void DecoderModel::complete(const std::function<std::shared_ptr<DecoderBlock>()>& block, Norm norm,
                            std::optional<uint64_t> seed) {
  blocks_ = stack_->register_module(design_.blocks, torch::nn::ModuleList());
  for (int64_t i = 0; i < design_.n_layer; ++i) blocks_->push_back(block());
  norm_ = stack_->register_module(design_.norm, std::move(norm));
  head_ =
      register_module(kHead, AdaptableLinear(design_.n_embd, vocab_size(), /*with_bias=*/false));
  if (design_.tied) head_->tie(table_->weight);
  if (seed) DecoderModel::draw_weights(*seed);
}

torch::Tensor DecoderModel::embed(const torch::Tensor& idx_BT, const TokenContext& context,
                                  const BlockPass& pass) {
  auto x_BSC = table_(idx_BT, pass.rows);
  if (table_rows_.defined()) {
    const auto row_BT = idx_BT - (vocab_size() - table_rows_.size(0));
    x_BSC = torch::where(row_BT.ge(0).unsqueeze(-1),
                         at::embedding(table_rows_, row_BT.clamp_min(0)), x_BSC);
  }
  const float scale = design_.embedding_scale;
  return with_prompt(scale == 1.0F ? x_BSC : x_BSC * scale, context);
}

torch::Tensor DecoderModel::stage(const torch::Tensor& x_BSC, const LayerRange& layers,
                                  const torch::Tensor& idx_BT, const TokenContext& context) {
  RouterLoad load(design_.n_expert);
  RouterLoad* const wanted = balances() && context.cache == nullptr ? &load : nullptr;
  const bool has_sums = wanted != nullptr && layers.begin > 0;
  LayerSeeds seeds(idx_BT.device(),
                   is_training() && (design_.drops || drops_in_adapters(*blocks_)));
  std::map<int64_t, BlockPass> passes;
  const auto pass_of = [&](int64_t layer) -> BlockPass& {
    const int64_t its_window = window(layer);
    if (!passes.contains(its_window))
      passes.emplace(its_window, new_pass(its_window, idx_BT, context, wanted));
    return passes.at(its_window);
  };
  ResidualStream stream{layers.begin == 0 ? embed(idx_BT, context, pass_of(0))
                        : has_sums        ? load.take_from(x_BSC)
                                          : x_BSC};
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    seeds.begin(i);
    BlockPass& pass = pass_of(i);
    pass.layer = static_cast<std::size_t>(i);
    stream = through_block(stream, pass);
  }
  if (layers.end < design_.n_layer)
    return wanted == nullptr ? stream.sum() : load.append_to(stream.sum());
  if (wanted != nullptr) set_router_loss(load.balancing_loss(idx_BT.numel() * design_.n_layer));
  return head_input(norm_(stream).y, pass_of(layers.end - 1).rows);
}

BlockPass DecoderModel::new_pass(int64_t window, const torch::Tensor& idx_BT,
                                 const TokenContext& context, RouterLoad* load) {
  BlockPass pass{.cache = context.cache, .window = window, .mask = context.mask(idx_BT, window)};
  if (pass.cache == nullptr)  // generation does not divide rows
    pass.rows = rows_between_layers(tensor_ranks(), idx_BT.size(1), is_training());
  pass.load = load;
  set_positions(pass, idx_BT, context);
  return pass;
}

ResidualStream DecoderModel::through_block(const ResidualStream& stream, const BlockPass& pass) {
  auto* block = blocks_[pass.layer]->as<DecoderBlock>();
  if (design_.checkpointed && is_training() && pass.cache == nullptr)
    return checkpointed(block, stream, pass, design_.n_expert);
  if (block->has_hooks()) return {block->forward(stream.sum(), pass)};
  return block->through(stream, pass);
}

int64_t DecoderModel::rows_handed_on(int64_t length) const {
  const int64_t rows = CausalModel::rows_handed_on(length);
  return balances() ? rows + RouterLoad::rows(design_.n_expert, design_.n_embd) : rows;
}

void DecoderModel::keep(const ModelPart& part) {
  blocks_ = stack_->replace_module(design_.blocks, kept_blocks(*blocks_, part));
  if (!part.has_first() && !(design_.tied && part.has_last())) {
    stack_->unregister_module(design_.table);
    table_ = nullptr;
  }
  if (part.has_last()) return;
  stack_->unregister_module(design_.norm);
  norm_ = nullptr;
  unregister_module(kHead);
  head_ = nullptr;
}

void DecoderModel::draw_weights(uint64_t seed) {
  constexpr double kStd = 0.02;
  const double residual_std = kStd / std::sqrt(2.0 * static_cast<double>(design_.n_layer));
  const torch::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  draw_each([&](const std::string& name, torch::Tensor& tensor) {
    if (name.ends_with(".bias"))
      tensor.zero_();
    else if (tensor.dim() == 1)
      tensor.fill_(design_.norm_start);
    else
      tensor.normal_(0.0, place_of(name).split == Split::kRows ? residual_std : kStd, generator);
  });
}

torch::Tensor DecoderModel::tied_table() const {
  return design_.tied && table_ ? table_->weight : torch::Tensor();
}

void DecoderModel::train_last_rows(int64_t count) {
  table_rows_ = take_last_rows(*table_, table_->weight, count);
  head_rows_ = design_.tied ? table_rows_ : take_last_rows(*head_, head_->weight, count);
}

LowRankPair DecoderModel::added_to_logits(const torch::Tensor& x) const {
  if (const auto& head = head_.ptr(); head->adapted()) return {head->reduced(x), head->expanding()};
  if (!head_rows_.defined()) return {};
  const int64_t count = head_rows_.size(0);
  const auto their_logits = torch::eye(count, head_rows_.options());
  return {at::linear(x, head_rows_),
          at::constant_pad_nd(their_logits, {0, 0, vocab_size() - count, 0})};
}

}  // namespace ddp::train
