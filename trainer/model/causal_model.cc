#include "trainer/model/causal_model.h"

#include <algorithm>

#include "trainer/model/blocks/adaptable_linear.h"
#include "trainer/model/cost/tensor_cost.h"
#include "trainer/model/lora.h"
#include "trainer/model/ops/block_ops.h"
#include "trainer/model/prompt_tuning.h"

namespace ddp::train {
namespace {

constexpr int64_t kBytesOfHalf = 2;
constexpr int64_t kBytesOfFloat = 4;

}  // namespace

CausalModel::CausalModel(Options options) : options_(std::move(options)) {
  for (const WeightPlace& place : options_.layout) places_.emplace(place.name, &place);
  if (options_.experts) whole_ = shapes_of(options_.layout);
}

const WeightPlace& CausalModel::place_of(const std::string& weight) const {
  const auto place = places_.find(weight);
  TORCH_CHECK(place != places_.end(), "no place for ", weight);
  return *place->second;
}

TensorLayout CausalModel::layout_of(const std::string& weight) const {
  return ddp::train::layout_of(place_of(weight), options_.ranks->rank(), options_.ranks->size());
}

TensorLayouts CausalModel::parameter_layouts() const {
  TensorLayouts layouts;
  if (!options_.ranks && whole_.empty()) return layouts;
  std::unordered_map<std::string, int64_t> order;  // in the whole model
  for (const auto& each : whole_shapes()) order.emplace(each.name, std::ssize(order));
  for (const auto& [name, tensor, role] : model_parameters()) {
    const bool counted = !options_.experts || options_.experts->rank() == 0 ||
                         place_of(name).expert != WeightPlace::kNoExpert;
    TensorLayout layout =
        options_.ranks ? layout_of(name) : TensorLayout::whole(tensor.sizes().vec(), counted);
    layout.place = order.at(name);
    layouts.emplace(name, std::move(layout));
  }
  return layouts;
}

void CausalModel::draw(const std::string& name, torch::Tensor& weight,
                       const std::function<void(torch::Tensor&)>& fill) {
  if (!options_.ranks) return fill(weight);
  const TensorLayout layout = layout_of(name);
  auto whole = torch::empty(layout.shape, weight.options().requires_grad(false));
  fill(whole);
  weight.set_data(own_part(whole, layout));
}

void CausalModel::set_weight(const std::string& name, torch::Tensor& weight,
                             const torch::Tensor& values) {
  const torch::NoGradGuard no_grad;
  if (options_.ranks)
    weight.set_data(own_part(values, layout_of(name)));
  else
    weight.copy_(values);
}

void CausalModel::keep_own_parts() {
  if (!options_.ranks) return;
  const torch::NoGradGuard no_grad;
  for (auto& item : named_parameters()) {
    const TensorLayout layout = layout_of(item.key());
    torch::Tensor& weight = item.value();
    if (weight.sizes() != layout.local_shape()) weight.set_data(own_part(weight, layout));
  }
}

std::vector<std::string> CausalModel::partial_gradients() const {
  std::vector<std::string> names;
  if (!options_.ranks) return names;
  for (const auto& item : named_parameters()) {
    const Split split = place_of(item.key()).split;
    if (split == Split::kInEachPart ||
        (split == Split::kNone && options_.ranks->divides_sequence()))
      names.push_back(item.key());
  }
  return names;
}

void CausalModel::sum_partial_gradients() {
  if (!options_.ranks) return;
  const torch::NoGradGuard no_grad;
  const auto parameters = named_parameters();
  std::vector<torch::Tensor> partial;
  for (const std::string& name : partial_gradients()) {
    const auto& gradient = parameters[name].grad();
    if (gradient.defined()) partial.push_back(gradient);
  }
  if (partial.empty()) return;
  const auto sum = at::flatten_dense_tensors(partial);
  options_.ranks->sum(sum);
  const auto sums = at::unflatten_dense_tensors(sum, partial);
  for (std::size_t i = 0; i < partial.size(); ++i) partial[i].copy_(sums[i]);
}

/// [..., C] -> [..., V].
torch::Tensor CausalModel::all_logits(const torch::Tensor& x) const {
  const auto own = logits(x, head_weight());
  if (!options_.ranks) return own;
  auto shape = x.sizes().vec();
  shape.back() = vocab_size();
  return gather_logits(own.reshape({-1, own.size(-1)}), vocab_size(), vocabulary_share())
      .view(shape);
}

torch::Tensor CausalModel::forward(const torch::Tensor& idx_BT, const torch::Tensor& positions_BT) {
  TORCH_CHECK(idx_BT.size(1) <= block_size(), "a sequence of ", idx_BT.size(1),
              " tokens is longer than block_size ", block_size());
  return all_logits(token_states(idx_BT, {nullptr, positions_BT}));
}

KeyValueCache CausalModel::new_cache(int64_t capacity, torch::Tensor padding_B) const {
  KeyValueCache cache(cached_layers(), capacity + prompt_tokens(), std::move(padding_B));
  const auto device = parameters().front().device();
  if (device.is_cuda())
    cache.length_1 = torch::zeros({1}, torch::TensorOptions(torch::kInt64).device(device));
  return cache;
}

torch::Tensor CausalModel::next_logits(const torch::Tensor& idx_BT, KeyValueCache& cache) {
  const int64_t count = idx_BT.size(1) + (cache.length == 0 ? prompt_tokens() : 0);
  TORCH_CHECK(cache.length + count <= std::min(cache.capacity, options_.block_size), "no room for ",
              count, " tokens after ", cache.length);
  cache.make_room(count);
  const auto x_BTC = token_states(idx_BT, {&cache});
  cache.advance(count);
  if (options_.experts) {  // products of other sizes may differ in the last bit
    auto logits_BV = all_logits(x_BTC.select(1, -1));
    if (options_.experts->rank() > 0) logits_BV.zero_();
    options_.experts->sum(logits_BV);
    return logits_BV;
  }
  if (links_ == nullptr) return all_logits(x_BTC.select(1, -1));
  auto logits_BV = torch::empty({idx_BT.size(0), vocab_size()}, parameters().front().options());
  if (has_head()) logits_BV.copy_(all_logits(x_BTC.select(1, -1)));
  links_->share(logits_BV);
  return logits_BV;
}

torch::Tensor CausalModel::hidden_states(const torch::Tensor& idx_BT, const TokenContext& context) {
  return stage({}, {0, layers()}, idx_BT, context);
}

void CausalModel::add_prompt(const torch::Tensor& embeddings_PC) {
  for (const auto& parameter : parameters()) parameter.set_requires_grad(false);
  prompt_PC_ = register_parameter(kPromptName, embeddings_PC.to(head_weight().device()));
}

torch::Tensor CausalModel::with_prompt(const torch::Tensor& x_BTC,
                                       const TokenContext& context) const {
  if (context.prompt == 0) return x_BTC;
  const int64_t P = context.prompt;
  const auto prompt_PC = prompt_PC_.to(x_BTC.dtype());
  if (context.cache == nullptr || !context.cache->padding_B.defined()) {
    return at::cat(
        {prompt_PC.expand({x_BTC.size(0), -1, -1}), x_BTC.narrow(1, P, x_BTC.size(1) - P)}, 1);
  }
  const auto slots_T = torch::arange(x_BTC.size(1), context.cache->padding_B.options());
  const auto of_prompt_BT = slots_T - context.cache->padding_B.unsqueeze(1);
  const auto virtual_BT1 = ((of_prompt_BT >= 0) & (of_prompt_BT < P)).unsqueeze(2);
  return torch::where(virtual_BT1, at::embedding(prompt_PC, of_prompt_BT.clamp(0, P - 1)), x_BTC);
}

torch::Tensor CausalModel::token_states(const torch::Tensor& idx_BT, const TokenContext& context) {
  const int64_t P = prompt_tokens();
  if (P == 0 || (context.cache != nullptr && context.cache->length > 0))
    return final_states(idx_BT, context);
  TokenContext behind{context.cache, context.positions_BT, P};
  if (behind.positions_BT.defined()) {
    const auto first_BP = torch::arange(P, idx_BT.options()).expand({idx_BT.size(0), P});
    behind.positions_BT = at::cat({first_BP, behind.positions_BT + P}, 1);
  }
  const auto places_BT = at::constant_pad_nd(idx_BT, {P, 0});  // token 0 in theirs
  return final_states(places_BT, behind).narrow(1, P, idx_BT.size(1)).contiguous();
}

torch::Tensor CausalModel::final_states(const torch::Tensor& idx_BT, const TokenContext& context) {
  return part_ ? through_stages(idx_BT, context) : hidden_states(idx_BT, context);
}

torch::Tensor CausalModel::through_stages(const torch::Tensor& idx_BT,
                                          const TokenContext& context) {
  TORCH_CHECK(links_ != nullptr, "a part of a model cannot compute alone");
  const auto options = parameters().front().options().requires_grad(false);
  torch::Tensor x_BTC;
  const int64_t length = idx_BT.size(1);
  const int64_t rows = context.cache != nullptr ? length : rows_handed_on(length);
  for (const LayerRange& layers : part_->stages) {
    if (layers.begin > 0) {
      x_BTC = torch::empty({idx_BT.size(0), rows, width_}, options);
      links_->receive(x_BTC);
    }
    x_BTC = stage(x_BTC, layers, idx_BT, context);
    if (layers.end < part_->layers) links_->send(x_BTC.to(options.dtype()).contiguous());
  }
  return x_BTC;
}

int64_t CausalModel::rows_handed_on(int64_t length) const {
  const auto rows = rows_between_layers(options_.ranks, length, is_training());
  return rows.divided() ? rows.here : length;
}

torch::Tensor CausalModel::stage(const torch::Tensor& /*x_BTC*/, const LayerRange& /*layers*/,
                                 const torch::Tensor& /*idx_BT*/, const TokenContext& /*context*/) {
  TORCH_CHECK(false, "this model cannot be cut into stages");
}

void CausalModel::cut(ModelPart part, std::optional<uint64_t> seed) {
  whole_ = whole_shapes();
  width_ = head_weight().size(1);
  keep(part);
  part_ = std::move(part);
  if (seed) draw_weights(*seed);
}

void CausalModel::draw_each(
    const std::function<void(const std::string& name, torch::Tensor& tensor)>& value) {
  auto own = named_parameters();
  for (const auto& [name, sizes, role] : whole_shapes()) {
    const auto fill = [&, &name = name](torch::Tensor& tensor) { value(name, tensor); };
    if (auto* const held = own.find(name)) {
      draw(name, *held, fill);
      continue;
    }
    auto elsewhere = torch::empty(sizes);
    fill(elsewhere);
  }
}

bool CausalModel::is_borrowed(const torch::Tensor& parameter) const {
  return part_ && !part_->has_first() && parameter.is_same(tied_table());
}

torch::Tensor CausalModel::shared_table() const {
  const bool divided = part_ && part_->has_first() != part_->has_last();
  return divided ? tied_table() : torch::Tensor();
}

// `auto`: on a GPU, because tensor cores want rows of a multiple of 64.
int64_t CausalModel::logits_padding() const {
  constexpr int64_t kOfGpu = 64;
  const AutoNumber& padded_to = options_.pad_vocab_to_multiple_of;
  const int64_t automatic = parameters().front().is_cuda() ? kOfGpu : 1;
  const auto multiple =
      padded_to.automatic ? automatic : std::max<int64_t>(1, static_cast<int64_t>(padded_to.value));
  return (multiple - own_tokens().size() % multiple) % multiple;
}

torch::Tensor CausalModel::capped(const torch::Tensor& logits) const {
  const double cap = options_.logit_softcap;
  return cap > 0.0 ? ops::softcapped(logits, cap) : logits;
}

torch::Tensor CausalModel::logits(const torch::Tensor& x, const torch::Tensor& table_PC) const {
  const int64_t own = own_tokens().size();
  auto all = at::linear(x, table_PC);
  if (const auto added = added_to_logits(x); added.x_NR.defined())
    all = all.narrow(-1, 0, own) + at::linear(added.x_NR, added.weight_VR);
  all = capped(all);
  return all.size(-1) == own ? all : all.narrow(-1, 0, own);
}

// As many rows of logits as fit into kAutomaticLogitBytes. Ranks that share a vocabulary
// communicate once a chunk: all of them count with the largest share.
int64_t CausalModel::automatic_rows(int64_t bytes_per_logit) const {
  const int64_t ranks = options_.ranks ? options_.ranks->size() : 1;
  const int64_t tokens = (vocab_size() + ranks - 1) / ranks;
  return std::max<int64_t>(1, kAutomaticLogitBytes / (bytes_per_logit * tokens));
}

int64_t CausalModel::rows_at_a_time(int64_t rows, int64_t bytes_per_logit) const {
  const AutoNumber& size = options_.loss_chunk_size;
  const int64_t chunk =
      size.automatic ? automatic_rows(bytes_per_logit) : static_cast<int64_t>(size.value);
  return chunk == 0 ? rows : std::min(rows, chunk);
}

// Also where the loss takes all rows at once: here that would only cost memory.
int64_t CausalModel::rows_in_evaluation(int64_t rows) const {
  return std::min(rows_at_a_time(rows, kBytesOfFloat), automatic_rows(kBytesOfFloat));
}

torch::Tensor CausalModel::loss(const torch::Tensor& idx_BT, const torch::Tensor& targets_BT,
                                const torch::Tensor& positions_BT) {
  return loss_of(token_states(idx_BT, {nullptr, positions_BT}), targets_BT);
}

torch::Tensor CausalModel::loss_of(const torch::Tensor& x_BTC, const torch::Tensor& targets_BT) {
  return with_router_loss(likelihood_loss(x_BTC, targets_BT));
}

torch::Tensor CausalModel::with_router_loss(const torch::Tensor& loss) {
  if (!router_loss_.defined()) return loss;
  const auto balancing = std::exchange(router_loss_, router_loss_.detach());
  return loss + balancing * options_.router_aux_loss_coef;
}

torch::Tensor CausalModel::likelihood_loss(const torch::Tensor& x_BTC,
                                           const torch::Tensor& targets_BT) const {
  const auto targets_N = targets_BT.reshape({-1});
  const bool fused = !options_.ranks && label_smoothing_ == 0.0 &&
                     is_cross_entropy_fused(head_weight(), logits_padding());
  const int64_t chunk = rows_at_a_time(targets_N.size(0), fused ? kBytesOfHalf : kBytesOfFloat);
  if (chunk == targets_N.size(0) && !options_.ranks && !fused) {
    const auto table_PC = padded_table(head_weight(), logits_padding());
    const auto logits_NV = ops::wide(logits(x_BTC, table_PC).view({-1, vocab_size()}));
    return at::cross_entropy_loss(logits_NV, targets_N, {}, at::Reduction::Mean,
                                  /*ignore_index=*/-1, label_smoothing_);
  }
  const auto x_NC = x_BTC.view({-1, x_BTC.size(2)});
  const auto sum = chunked_cross_entropy_sum(
      x_NC, head_weight(), targets_N, chunk, logits_padding(), vocabulary_share(),
      options_.logit_softcap, label_smoothing_, added_to_logits(x_NC));
  return sum / targets_N.ne(-1).sum();
}

torch::Tensor CausalModel::evaluation_sums(const torch::Tensor& idx_BT,
                                           const torch::Tensor& targets_BT,
                                           const torch::Tensor& positions_BT) {
  const auto x_BTC = token_states(idx_BT, {nullptr, positions_BT});
  if (!has_head()) return torch::zeros({3}, torch::TensorOptions(idx_BT.device()));
  const auto x_NC = x_BTC.view({-1, x_BTC.size(2)});
  const auto targets_N = targets_BT.reshape({-1});
  const int64_t chunk = rows_in_evaluation(targets_N.size(0));
  const auto table_PC = padded_table(head_weight(), logits_padding());
  auto sums = torch::zeros({3}, x_NC.options().dtype(torch::kFloat32));
  for (int64_t first = 0; first < targets_N.size(0); first += chunk) {
    const int64_t count = std::min(chunk, targets_N.size(0) - first);
    const auto targets_n = targets_N.narrow(0, first, count);
    auto [loss, best_n] = loss_and_best(logits(x_NC.narrow(0, first, count), table_PC), targets_n);
    sums += torch::stack({loss, best_n.eq(targets_n).sum().to(torch::kFloat32),
                          targets_n.ne(-1).sum().to(torch::kFloat32)});
  }
  return sums;
}

/// Sum of the losses, float32, and the most likely token of each row.
std::pair<torch::Tensor, torch::Tensor> CausalModel::loss_and_best(
    const torch::Tensor& logits_nV, const torch::Tensor& targets_n) const {
  if (!options_.ranks) {
    return {at::cross_entropy_loss(logits_nV.to(torch::kFloat32), targets_n, {}, at::Reduction::Sum,
                                   /*ignore_index=*/-1),
            logits_nV.argmax(-1)};
  }
  const torch::NoGradGuard no_grad;
  const auto best_n = divided_argmax(logits_nV, vocabulary_share());
  auto logits = ops::wide(logits_nV).clone();
  const auto losses_n = divided_cross_entropy_(logits, targets_n, vocabulary_share());
  return {losses_n.sum().to(torch::kFloat32), best_n};
}

torch::Tensor CausalModel::target_losses(const torch::Tensor& idx_BT,
                                         const torch::Tensor& targets_BT) {
  TORCH_CHECK(!options_.ranks, "losses of single targets need a whole model");
  const auto x_BTC = token_states(idx_BT, {});
  const auto all_N = targets_BT.reshape({-1});
  const auto rows_n = all_N.ne(-1).nonzero().squeeze(1);
  const auto x_nC = x_BTC.view({-1, x_BTC.size(2)}).index_select(0, rows_n);
  const auto targets_n = all_N.index_select(0, rows_n);
  const auto table_PC = padded_table(head_weight(), logits_padding());
  auto losses_N = torch::zeros(all_N.sizes(), x_nC.options().dtype(torch::kFloat32));
  const int64_t chunk = rows_in_evaluation(std::max<int64_t>(1, rows_n.size(0)));
  for (int64_t first = 0; first < rows_n.size(0); first += chunk) {
    const int64_t count = std::min(chunk, rows_n.size(0) - first);
    const auto logits_cV = logits(x_nC.narrow(0, first, count), table_PC).to(torch::kFloat32);
    losses_N.index_copy_(0, rows_n.narrow(0, first, count),
                         at::cross_entropy_loss(logits_cV, targets_n.narrow(0, first, count), {},
                                                at::Reduction::None));
  }
  return losses_N.view(targets_BT.sizes());
}

std::vector<ModelParameter> CausalModel::model_parameters() const {
  std::vector<torch::Tensor> tables;
  for (const auto& module : modules(/*include_self=*/false)) {
    if (module->as<torch::nn::EmbeddingImpl>() == nullptr) continue;
    for (const auto& table : module->parameters()) tables.push_back(table);
  }
  const auto role_of = [&](const std::string& name, const torch::Tensor& parameter) {
    const auto is_this = [&parameter](const torch::Tensor& t) { return t.is_same(parameter); };
    if (is_this(prompt_PC_) || std::any_of(tables.begin(), tables.end(), is_this))
      return ParameterRole::kEmbedding;
    if (parameter.dim() < 2) return ParameterRole::kOther;
    const bool of_head = name.ends_with(kRowsOfTokens) || (has_head() && is_this(head_weight()));
    return of_head ? ParameterRole::kLinear : ParameterRole::kHidden;
  };
  std::vector<ModelParameter> result;
  for (const auto& item : named_parameters()) {
    if (!is_borrowed(item.value()))
      result.push_back({item.key(), item.value(), role_of(item.key(), item.value())});
  }
  return result;
}

std::vector<ParameterShape> CausalModel::whole_shapes() const {
  if (!whole_.empty()) return whole_;
  std::vector<ParameterShape> shapes;
  for (const auto& [name, tensor, role] : model_parameters())
    shapes.push_back({name, tensor.sizes().vec(), role});
  return shapes;
}

int64_t CausalModel::parameter_count() const {
  if (options_.ranks || options_.experts) return elements_of(options_.layout);
  int64_t count = part_ ? elements_of(options_.layout) : quantized_count(*this);
  for (const auto& each : whole_shapes())
    if (!part_ || is_of_adapter(each.name)) count += c10::multiply_integers(each.sizes);
  return count;
}

}  // namespace ddp::train
