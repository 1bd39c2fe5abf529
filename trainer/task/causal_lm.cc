#include "trainer/task/causal_lm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>

#include "trainer/config/add_tokens.h"
#include "trainer/data/data_source.h"
#include "trainer/interop/base_settings.h"
#include "trainer/interop/pretrained_weights.h"
#include "trainer/metrics/text.h"
#include "trainer/model/model_division.h"
#include "trainer/model/pretrained_config.h"
#include "trainer/parallel/device/device_wait.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/with_key.h"
#include "trainer/task/adapted_model.h"
#include "trainer/task/generate/text_sample.h"
#include "trainer/task/tensor_ranks.h"
#include "trainer/tokenizer/char_tokenizer.h"
#include "trainer/tokenizer/special_tokens.h"
#include "trainer/tokenizer/tokenizer_folder.h"

namespace ddp::train {
namespace {

/// Metadata key of a character vocabulary: a JSON array in the order of the ids.
constexpr const char* kVocabulary = "vocabulary";
/// Metadata key of every other tokenizer's state.
constexpr const char* kTokenizer = "tokenizer";

/// The tokenizer of the snapshot to start from; null if the run starts from none.
std::unique_ptr<Tokenizer> tokenizer_of_pretrained(const Config& config) {
  const std::string path = causal_architecture(config).pretrained(config);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return nullptr;
  return tokenizer_of(causal_snapshot_metadata(path));
}

/// Null: there is none that can be read, which is why another one is named.
std::unique_ptr<Tokenizer> tokenizer_in_folder(const std::string& folder) {
  try {
    return holds_tokenizer(folder) ? load_tokenizer(folder) : nullptr;
  } catch (const UserError&) {
    return nullptr;
  }
}

/// Whether `larger` has all tokens of `smaller` under their ids, and others after them.
bool adds_tokens(const Tokenizer& larger, const Tokenizer& smaller) {
  bool same = larger.size() > smaller.size();
  for (int32_t id = 0; same && id < smaller.size(); ++id)
    same = larger.decode(id) == smaller.decode(id);
  return same;
}

/// Whether a run that does not resume has the tokenizer of the folder to start from: it configures
/// none, and files of tokens have their own.
bool takes_folders_tokenizer(const Config& config) {
  DataConfig first = config.data;
  if (!first.sources.empty()) first.path = first.sources.front().path;
  return first.tokenizer.empty() && !holds_tokens(first) &&
         holds_tokenizer(causal_architecture(config).pretrained(config));
}

/// The tokenizer of a run that configures none and does not resume: the one of the snapshot to
/// start from, or for texts the folder's. Null: there is none.
std::unique_ptr<Tokenizer> default_tokenizer(const Config& config) {
  const CausalArchitecture& architecture = causal_architecture(config);
  if (!takes_folders_tokenizer(config)) return tokenizer_of_pretrained(config);
  return load_tokenizer(architecture.huggingface_layout()->key, architecture.pretrained(config));
}

std::string base_settings(const Config& config, const SnapshotMetadata* resumed,
                          const Tokenizer& tokenizer) {
  if (resumed != nullptr && resumed->contains(kBaseSettings)) return resumed->at(kBaseSettings);
  if (resumed != nullptr) return "";  // its run started from no model
  return base_settings_state(causal_architecture(config).pretrained(config),
                             takes_folders_tokenizer(config) ? nullptr : &tokenizer);
}

std::unique_ptr<CausalData> open_causal_data(const Config& config,
                                             const SnapshotMetadata* metadata) {
  if (config.task == TaskKind::kPreference) return open_preference_data(config, metadata);
  if (metadata == nullptr) check_row_keys(config.data);
  if (config.data.format == DataFormat::kChat) return open_chat_data(config, metadata);
  const bool resumes = metadata != nullptr;
  return open_text_data(config, resumes ? tokenizer_of(*metadata) : default_tokenizer(config),
                        resumes);
}

/// How many characters begin in each token: one may be spread over several.
torch::Tensor characters_of_tokens(const Tokenizer& tokenizer) {
  auto counts = torch::empty({tokenizer.size()}, torch::kFloat32);
  auto* values = counts.mutable_data_ptr<float>();
  for (int64_t i = 0; i < tokenizer.size(); ++i)
    values[i] = static_cast<float>(count_characters(tokenizer.decode(static_cast<int32_t>(i))));
  return counts;
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_of(const std::map<std::string, std::string>& metadata) {
  if (const auto state = metadata.find(kTokenizer); state != metadata.end())
    return tokenizer_from_state(state->second);
  const auto vocabulary = metadata.find(kVocabulary);
  if (vocabulary == metadata.end())
    throw RunError("the snapshot holds no vocabulary: not one of a language model");
  using Json = nlohmann::json;
  try {
    return std::make_unique<CharTokenizer>(
        Json::parse(vocabulary->second).get<std::vector<std::string>>());
  } catch (const Json::exception& error) {
    throw RunError(
        fmt::format("damaged vocabulary in the snapshot: {}", plain_json_error(error.what())));
  }
}

std::map<std::string, std::string> tokenizer_metadata(const Tokenizer& tokenizer) {
  if (const auto* characters = dynamic_cast<const CharTokenizer*>(&tokenizer))
    return {{kVocabulary, nlohmann::json(characters->characters()).dump()}};
  return {{kTokenizer, tokenizer.state()}};
}

CausalLm::CausalLm(const Config& config, const std::map<std::string, std::string>* metadata)
    : config_(config),
      architecture_(causal_architecture(config)),
      data_(open_causal_data(config, metadata)),
      chat_template_(chat_template_of(config, metadata)),
      base_settings_(base_settings(config, metadata, data_->tokenizer())),
      sample_prompt_(make_sample_prompt()) {
  if (metadata != nullptr) resumed_ = *metadata;
  if (!resumed_) compare_vocabularies();
  if (!config.data.test_path.empty())
    test_ = data_->open_whole(config.data.test_path, "data_config.test_path");
  open_eval_sets();
}

// Another tokenizer may only add tokens to the model's.
void CausalLm::compare_vocabularies() {
  const int64_t added = std::ssize(add_tokens(config_));
  const Tokenizer& own = data_->tokenizer();
  const auto theirs = tokenizer_of_pretrained(config_);
  const std::string folder = architecture_.pretrained(config_);
  const bool may_differ = !config_.data.tokenizer.empty() || added > 0;
  const auto there = theirs == nullptr && may_differ ? tokenizer_in_folder(folder) : nullptr;
  const Tokenizer* base = theirs ? theirs.get() : there.get();
  if (base == nullptr || (there && own.size() <= there->size()) || have_same_tokens(own, *base))
    return;
  if (adds_tokens(own, *base)) {
    new_tokens_ = own.size() - base->size();
    if (!config_.lora.enabled() || new_tokens_ <= added) return;
    throw UserError(fmt::format(
        "data_config.tokenizer: {} has {} that the model lacks; list them as "
        "data_config.add_tokens, whose rows are trained next to adapters (lora.rank), or train all "
        "weights",
        config_.data.tokenizer, counted(new_tokens_, "token")));
  }
  throw UserError(fmt::format(
      "data_config.tokenizer: {} is another vocabulary than that of {}={}; leave it out to use the "
      "one that the weights were trained with, or add tokens to that one",
      config_.data.tokenizer, architecture_.huggingface_layout()->key, folder));
}

void CausalLm::open_eval_sets() {
  for (const NamedSet& set : config_.data.eval_sets)
    eval_sets_.push_back(data_->open_whole(set.path, "data_config.eval_sets." + set.name));
  if (eval_sets_.empty() || data_->evaluation().size() > 0) return;
  throw UserError(
      "data_config.eval_sets: are evaluated next to the evaluation data, and there are none; set "
      "data_config.eval_path, or data_config.train_split below 1");
}

std::vector<NamedSource> CausalLm::evaluation_sets() const {
  std::vector<NamedSource> sets;
  for (std::size_t i = 0; i < eval_sets_.size(); ++i)
    sets.push_back({config_.data.eval_sets[i].name, eval_sets_[i].get()});
  return sets;
}

const SampleSource* CausalLm::evaluation() const {
  return data_->evaluation().size() == 0 ? nullptr : &data_->evaluation();
}

// What cannot be divided is refused here, before a model is built.
void CausalLm::divide(Mesh& mesh) {
  check_division(config_);
  const MeshShape& shape = mesh.shape();
  if (shape.pipeline > 1) part_ = part_of_stage(config_, layout(), mesh.place().stage);
  if (shape.expert > 1) expert_ranks_ = make_expert_ranks(mesh.model());
  if (shape.tensor == 1) return;
  tensor_ranks_ = make_tensor_ranks(mesh.tensor(), config_.distributed.sequence_parallel);
}

std::vector<int64_t> CausalLm::activation_shape(const Batch& batch) const {
  const auto& tokens_BT = batch[kInputs];
  return {tokens_BT.size(0), model_->rows_handed_on(tokens_BT.size(1)), model_->width()};
}

torch::TensorOptions CausalLm::activation_options() const {
  return model_->parameters().front().options();
}

torch::Tensor CausalLm::forward_stage(int own_stage, const torch::Tensor& x_BTC,
                                      const Batch& batch) {
  const LayerRange& layers = part_->stages[static_cast<std::size_t>(own_stage)];
  const auto y_BTC =
      model_->stage(x_BTC, layers, batch[kInputs], {nullptr, batch.find(kPositions)});
  return layers.end == part_->layers ? note_added(model_->loss_of(y_BTC, countable_targets(batch)))
                                     : y_BTC;
}

void CausalLm::add_to_base(std::optional<uint64_t> seed) {
  const std::string expected = stored_base_digest(resumed_ ? &*resumed_ : nullptr);
  base_digest_ = config_.prompt_tuning.enabled()
                     ? add_prompt_to_base(*model_, config_, data_->tokenizer(), seed, expected)
                     : add_adapters_to_base(*model_, config_, seed, expected, new_tokens_);
}

void CausalLm::build_model(torch::Device device, std::optional<uint64_t> seed) {
  const std::string pretrained = architecture_.pretrained(config_);
  const int64_t new_rows = std::max<int64_t>(new_tokens_, std::ssize(add_tokens(config_)));
  if (config_.adapted()) {
    check_base(config_, data_->tokenizer().size());
  } else if (!resumed_ && !pretrained.empty()) {
    check_pretrained(pretrained, architecture_, config_, data_->tokenizer().size(), new_rows);
  }
  const auto& ranks = expert_ranks_ ? expert_ranks_ : tensor_ranks_;
  const bool drawn = !part_ && !config_.quantize.enabled() && (!ranks || pretrained.empty());
  model_ =
      make_causal_model(config_, data_->tokenizer().size(), drawn ? seed : std::nullopt, ranks);
  model_->set_label_smoothing(config_.trainer.label_smoothing);
  if (config_.adapted()) add_to_base(seed);
  if (part_) cut_model(pretrained.empty() ? seed : std::nullopt);
  if (!config_.adapted() && !resumed_ && !pretrained.empty()) {
    const auto whole = model_->whole_shapes();
    auto held = model_->named_parameters();
    load_pretrained(
        pretrained, *architecture_.huggingface_layout(), whole,
        [&](std::size_t i, const torch::Tensor& values) {
          const std::string& name = whole[i].name;
          if (auto* const weight = held.find(name)) model_->set_weight(name, *weight, values);
        },
        /*take_codes=*/{}, new_rows, add_tokens(config_).empty() ? 0 : new_tokens_);
  }
  model_->keep_own_parts();
  model_->to(device);
  model_->train();
  token_characters_ = characters_of_tokens(data_->tokenizer());
  // What ends a text or an answer, such as <|endoftext|>, is a token to learn and no text.
  for (const auto& end : {data_->tokenizer().end_of_text(), data_->sample_end()})
    if (end) token_characters_.index_put_({*end}, 0);
}

// Made before training, so that a prompt that cannot be encoded fails at once, not amid a run.
std::vector<int32_t> CausalLm::make_sample_prompt() const {
  if (config_.trainer.sample_every_steps == 0) return {};
  return with_key("trainer_config.sample_prompt",
                  [this] { return data_->sample_prompt(config_.trainer.sample_prompt); });
}

std::optional<std::string> CausalLm::sample(uint64_t seed, const std::function<bool()>& go_on) {
  SamplingOptions options;
  options.max_new_tokens = config_.trainer.sample_tokens;
  options.seed = seed;
  return sample_text(*model_, data_->tokenizer(), sample_prompt_, data_->sample_end(), options,
                     go_on);
}

std::vector<Parameter> CausalLm::parameters() const {
  return trainable_parameters(model_->model_parameters());
}

std::vector<ParameterShape> CausalLm::whole_shapes() const {
  return part_ || expert_ranks_ ? trainable_shapes(model_->whole_shapes()) : Task::whole_shapes();
}

std::vector<std::string> CausalLm::shape_keys() const {
  auto keys = architecture_.shape_keys();
  for (const char* key : {"data_config.add_tokens", "lora.rank", "lora.targets", "lora.alpha",
                          "lora.use_rslora", "prompt_tuning.tokens", "quantize.base"})
    keys.emplace_back(key);
  return keys;
}

void CausalLm::join(ProcessGroup& group, int64_t micro_batches) {
  if (expert_ranks_ && micro_batches % expert_ranks_->size() != 0) {
    throw UserError(fmt::format(
        "distributed_config.expert={}: ranks compute experts for each other, and cannot share the "
        "{} micro-batches of a step evenly; make trainer_config.global_batch_size a multiple of {}",
        expert_ranks_->size(), micro_batches, expert_ranks_->size() * config_.trainer.batch_size));
  }
  if (config_.adapted()) check_same_base(base_digest_, config_, group);
}

void CausalLm::cut_model(std::optional<uint64_t> seed) {
  if (model_->layers() == 0) {
    throw UserError(
        fmt::format("distributed_config.pipeline: model={} cannot be cut into stages; use "
                    "strategy=zero3, which divides any model",
                    config_.model));
  }
  model_->cut(*part_, seed);
}

// A mean over no target would be 0 / 0; any token will do there.
torch::Tensor CausalLm::countable_targets(const Batch& batch) {
  const torch::Tensor& targets_BT = batch[kTargets];
  return batch.target_count > 0 ? targets_BT : targets_BT.clamp_min(0);
}

torch::Tensor CausalLm::loss(const Batch& batch) {
  return note_added(model_->loss(batch[kInputs], countable_targets(batch), batch.find(kPositions)));
}

torch::Tensor CausalLm::note_added(torch::Tensor loss) {
  if (model_->router_loss().defined()) router_losses_.push_back(model_->router_loss());
  return loss;
}

Metrics CausalLm::step_metrics(ProcessGroup& group) {
  if (!architecture_.waits_for_device(config_)) return {};
  auto sums = torch::zeros({2}, torch::kFloat64);
  if (!last_router_losses_.empty()) {
    sums[0] = to_host(torch::stack(last_router_losses_)).to(torch::kFloat64).sum();
    sums[1] = static_cast<double>(last_router_losses_.size());
  }
  group.all_reduce_sum(sums);
  const double count = sums[1].item<double>();
  return count == 0.0 ? Metrics{} : Metrics{{"aux_loss", sums[0].item<double>() / count}};
}

torch::Tensor CausalLm::smallest_loss() {
  const auto device = model_->parameters().front().device();
  const int64_t rows = tensor_ranks_ ? tensor_ranks_->size() : 1;
  const auto tokens = torch::zeros({1, rows}, torch::TensorOptions(torch::kInt64).device(device));
  if (!part_) return model_->loss(tokens, tokens);
  auto sum = torch::zeros({}, torch::TensorOptions(device));
  for (const LayerRange& layers : part_->stages) {
    const auto x = torch::zeros({1, model_->rows_handed_on(rows), model_->width()},
                                activation_options().requires_grad(false));
    const auto y = model_->stage(x, layers, tokens, {});
    sum = sum + (layers.end == part_->layers ? model_->loss_of(y, tokens) : y.sum());
  }
  return sum;
}

BatchSums CausalLm::evaluate(const Batch& batch) {
  const auto all_BT = to_host(batch[kTargets]);
  const auto targets = all_BT.masked_select(all_BT != -1);
  auto characters = token_characters_.index_select(0, targets).sum().reshape({1});
  auto sums =
      to_host(model_->evaluation_sums(batch[kInputs], batch[kTargets], batch.find(kPositions)));
  // One of the ranks that share the last layers counts.
  if (!model_->has_head() || (tensor_ranks_ && tensor_ranks_->rank() > 0)) {
    sums.zero_();
    characters.zero_();
  }
  return {torch::cat({sums, characters}), {}};
}

Metrics CausalLm::metrics(const std::vector<double>& sums) const {
  const double tokens = sums[2];
  const double loss = sums[0] / tokens;
  return {{"loss", loss},
          {"perplexity", std::exp(loss)},
          {"bits_per_character", sums[0] / std::numbers::ln2 / sums[3]},
          {"accuracy", sums[1] / tokens},
          {"tokens", tokens}};
}

std::map<std::string, std::string> CausalLm::metadata() const {
  auto metadata = tokenizer_metadata(data_->tokenizer());
  if (!base_digest_.empty()) metadata[kBaseDigest] = base_digest_;
  if (!chat_template_.empty()) metadata[kChatTemplate] = chat_template_;
  metadata.merge(data_->metadata());
  if (!base_settings_.empty()) metadata[kBaseSettings] = base_settings_;
  return metadata;
}

void CausalLm::check_resume(const std::map<std::string, std::string>& metadata,
                            const std::string& snapshot) const {
  const auto theirs = tokenizer_of(metadata);
  if (without_end_mark(theirs->state()) == without_end_mark(data_->tokenizer().state())) return;
  throw UserError(fmt::format(
      "{} was trained with another vocabulary: its tokenizer is {} with {} tokens, that of this "
      "configuration is {} with {}; leave data_config.tokenizer out to continue with the "
      "snapshot's, or set trainer_config.snapshot_path to a new file to start from scratch",
      snapshot, theirs->kind(), theirs->size(), data_->tokenizer().kind(),
      data_->tokenizer().size()));
}

std::string CausalLm::describe_shares() const {
  int64_t held = 0;
  for (const auto& parameter : model_->parameters()) held += parameter.numel();
  const auto& ranks = expert_ranks_ ? expert_ranks_ : tensor_ranks_;
  return fmt::format("{} parallel: {} ranks share {}, rank 0 holds {} of {} parameters{}",
                     expert_ranks_ ? "Expert" : "Tensor", ranks->size(),
                     expert_ranks_ ? "the experts" : "each layer",
                     short_number(static_cast<double>(held)),
                     short_number(static_cast<double>(model_->parameter_count())),
                     ranks->divides_sequence() ? "; sequence parallel between layers" : "");
}

std::vector<std::string> CausalLm::describe() const {
  std::vector<std::string> lines = {fmt::format(
      "Model: {}; number of parameters: {} ({})", architecture_.describe(config_),
      short_number(static_cast<double>(model_->parameter_count())), model_->parameter_count())};
  if (tensor_ranks_ || expert_ranks_) lines.push_back(describe_shares());
  for (std::string& line : data_->describe()) lines.push_back(std::move(line));
  if (const int64_t padding = model_->logits_padding(); padding > 0 && !tensor_ranks_) {
    lines.push_back(fmt::format(
        "Logits: {} in the loss, of which {} count ({}_config.pad_vocab_to_multiple_of)",
        model_->vocab_size() + padding, model_->vocab_size(), architecture_.name()));
  }
  if (new_tokens_ > 0) {
    lines.push_back(fmt::format(
        "Vocabulary: {} more than the pretrained model's; their rows begin as the mean of the "
        "others",
        counted(new_tokens_, "token")));
  } else if (!add_tokens(config_).empty() && !resumed_) {
    lines.emplace_back(
        "Vocabulary: rows of data_config.add_tokens that the pretrained model's tables lack begin "
        "as the mean of the others");
  }
  if (config_.adapted())
    lines.push_back(describe_adapters(whole_shapes(), config_, model_->parameter_count()));
  return lines;
}

}  // namespace ddp::train
