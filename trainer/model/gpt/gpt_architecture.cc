#include "trainer/model/gpt/gpt_architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trainer/config/config.h"
#include "trainer/model/load/pretrained_json.h"
#include "trainer/model/pretrained_config.h"

namespace ddp::train {
namespace {

/// The weights of one block after another; `Split::kNone` for what every rank holds.
class GptLayout {
 public:
  GptLayout(const GptConfig& gpt, int64_t vocab_size, int64_t block_size)
      : gpt_(gpt), width_(gpt.n_embd) {
    add("transformer.wte.weight", {vocab_size, width_}, Split::kVocabulary, 1, vocab_size);
    add("transformer.wpe.weight", {block_size, width_});
    for (block_ = 0; block_ < gpt.n_layer; ++block_) add_block();
    block_ = WeightPlace::kAfterBlocks;
    add_norm("transformer.ln_f");
    if (!gpt.tie_weights)
      add("lm_head.weight", {vocab_size, width_}, Split::kVocabulary, 1, vocab_size);
  }

  WeightsLayout places;

 private:
  void add(std::string name, std::vector<int64_t> shape, Split split = Split::kNone,
           int64_t ranges = 1, int64_t units = 1) {
    places.push_back({std::move(name), std::move(shape), block_, split, ranges, units});
  }
  void add_norm(const std::string& name) {
    add(name + ".weight", {width_});
    add(name + ".bias", {width_});
  }
  /// A pair of layers between which each rank has its own part of `inner` features.
  void add_pair(const std::string& into, int64_t ranges, const std::string& out_of, int64_t inner,
                int64_t units) {
    add(into + ".weight", {ranges * inner, width_}, Split::kColumns, ranges, units);
    add(into + ".bias", {ranges * inner}, Split::kColumns, ranges, units);
    add(out_of + ".weight", {width_, inner}, Split::kRows, 1, units);
    add(out_of + ".bias", {width_});
  }
  void add_block() {
    const std::string block = fmt::format("transformer.h.{}.", block_);
    add_norm(block + "ln_1");
    add_pair(block + "attn.c_attn", 3, block + "attn.c_proj", width_, gpt_.n_head);
    add_norm(block + "ln_2");
    add_pair(block + "mlp.c_fc", 1, block + "mlp.c_proj", 4 * width_, 4 * width_);
  }

  const GptConfig& gpt_;
  const int64_t width_;
  int64_t block_ = WeightPlace::kBeforeBlocks;
};

std::string own_gpt2_name(const std::string& theirs) {
  constexpr std::string_view kPrefix = "transformer.";
  // Older versions saved the causal mask with the weights; a tied head has no parameter here.
  if (theirs.ends_with(".attn.bias") || theirs.ends_with(".attn.masked_bias")) return "";
  return theirs.starts_with("lm_head.") || theirs.starts_with(kPrefix)
             ? theirs
             : std::string(kPrefix) + theirs;
}

/// transformers keeps some weights as Conv1D does, [in, out].
bool is_transposed_in_gpt2(std::string_view name) {
  for (const std::string_view end : {"c_attn.weight", "c_proj.weight", "c_fc.weight"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

class GptArchitecture : public CausalArchitecture {
 public:
  std::string_view name() const override { return "gpt"; }

  void complete(Config& config, const Given& given) const override {
    GptConfig& gpt = config.gpt;
    SizeKeys keys(gpt, "gpt_config", given);
    const bool by_name = !gpt.model_type.empty() || gpt.init_from.empty();
    if (!keys.sizes_given() && by_name) keys.take_preset(gpt_presets(), "gpt2");
    if (!gpt.init_from.empty()) {
      keys.follow([&](const std::string& folder) {
        const PretrainedGpt there = read_pretrained_gpt(folder);
        if (!there.head_note.empty()) note_on_one_rank(there.head_note);
        if (gpt.n_layer == 0) keys.take_sizes(there);
        if (!given.has("gpt_config.activation") && there.activation)
          gpt.activation = *there.activation;
        if (!given.has("gpt_config.tie_weights")) gpt.tie_weights = there.tie_weights;
        if (!given.has("gpt_config.embd_pdrop")) gpt.embd_pdrop = there.embd_pdrop;
        if (!given.has("gpt_config.resid_pdrop")) gpt.resid_pdrop = there.resid_pdrop;
        if (!given.has("gpt_config.attn_pdrop")) gpt.attn_pdrop = there.attn_pdrop;
        return differences_from(there, gpt, config);
      });
    }
    keys.check_heads();
  }

  // model_type is only a name for three of them.
  std::vector<std::string> shape_keys() const override {
    return {"gpt_config.n_layer", "gpt_config.n_head", "gpt_config.n_embd",
            "gpt_config.tie_weights", "data_config.block_size"};
  }

  std::string describe(const Config& config) const override {
    return fmt::format("{} layers, {} heads, {} channels", config.gpt.n_layer, config.gpt.n_head,
                       config.gpt.n_embd);
  }

  void shrink(Config& config) const override {
    constexpr int64_t kLayers = 2, kHeads = 2, kWidth = 32;
    config.gpt.n_layer = std::min(config.gpt.n_layer, kLayers);
    config.gpt.n_head = kHeads;
    config.gpt.n_embd = kWidth;
    config.gpt.init_from.clear();
  }

  bool shares_layers() const override { return true; }
  WeightsLayout layout(const Config& config, int64_t vocab_size) const override {
    return gpt_layout(config.gpt, vocab_size, config.positions());
  }

  double flops_per_token(const Config& config, int64_t vocab_size) const override {
    const int64_t looked_up = config.positions() * config.gpt.n_embd;
    return ddp::train::flops_per_token({elements_of(layout(config, vocab_size)) - looked_up,
                                        config.gpt.n_layer, config.gpt.n_embd, config.positions()});
  }

  std::string_view flops_formula() const override { return "6N + 12LHQT per token"; }

  double recomputed_share(const Config& config) const override {
    return config.gpt.activation_checkpointing ? 1.0 : 0.0;
  }
  std::vector<MemoryItem> memory_items(const Config& config, int64_t vocab_size,
                                       const ComputePlace& place) const override {
    return ddp::train::memory_items(config, vocab_size, place);
  }

  std::vector<MemorySaver> memory_savers() const override {
    return {{"gpt_config.activation_checkpointing=true",
             [](Config& config) { config.gpt.activation_checkpointing = true; }}};
  }

  std::vector<std::string> lora_targets() const override { return {"c_attn"}; }

  int64_t published_vocabulary(const Config& config) const override {
    const std::string& name = config.gpt.model_type;
    return name.starts_with("gpt2") ? 50257 : name == "openai-gpt" ? 40478 : 0;
  }

  std::string pretrained(const Config& config) const override { return config.gpt.init_from; }
  void start_from(Config& config, const std::string& path) const override {
    config.gpt.init_from = path;
  }
  void untie(Config& config) const override { config.gpt.tie_weights = false; }

  std::vector<std::string_view> model_types() const override { return {"gpt2"}; }
  const PretrainedLayout* huggingface_layout() const override { return &kGpt2Layout; }

  std::string huggingface_config(const Config& config, int64_t vocab_size,
                                 std::optional<int32_t> end_of_text) const override {
    using OrderedJson = nlohmann::ordered_json;
    const GptConfig& gpt = config.gpt;
    const OrderedJson end_token = end_of_text ? OrderedJson(*end_of_text) : OrderedJson(nullptr);
    const OrderedJson text = {
        {"architectures", {"GPT2LMHeadModel"}},
        {"model_type", "gpt2"},
        {"vocab_size", vocab_size},
        {"n_positions", config.data.block_size},
        {"n_ctx", config.data.block_size},
        {"n_embd", gpt.n_embd},
        {"n_layer", gpt.n_layer},
        {"n_head", gpt.n_head},
        {"n_inner", nullptr},
        {"activation_function", gpt.activation == Activation::kGeluTanh ? "gelu_new" : "gelu"},
        {"embd_pdrop", gpt.embd_pdrop},
        {"resid_pdrop", gpt.resid_pdrop},
        {"attn_pdrop", gpt.attn_pdrop},
        {"layer_norm_epsilon", 1e-5},
        {"initializer_range", 0.02},
        {"tie_word_embeddings", gpt.tie_weights},
        {"bos_token_id", end_token},
        {"eos_token_id", end_token},
        {"torch_dtype", "float32"}};
    return text.dump(2) + "\n";
  }

  void take_folder(Config& config, const std::string& folder) const override {
    config.data.block_size = read_pretrained_gpt(folder).positions;
    config.gpt.init_from = folder;
    complete(config, Given({}, folder));
  }
};

}  // namespace

const PretrainedLayout kGpt2Layout = {
    "gpt_config.init_from",
    own_gpt2_name,
    is_transposed_in_gpt2,
    is_never_optional,
    "wpe.weight",
    "wte.weight",
    "a pytorch_model.bin or ckpt.pt is turned into such a folder by scripts/convert_checkpoint.py"};

WeightsLayout gpt_layout(const GptConfig& gpt, int64_t vocab_size, int64_t block_size) {
  return GptLayout(gpt, vocab_size, block_size).places;
}

std::unique_ptr<const CausalArchitecture> gpt_architecture() {
  return std::make_unique<GptArchitecture>();
}

const std::vector<ModelPreset>& gpt_presets() {
  static const std::vector<ModelPreset> presets = {
      {"openai-gpt", 12, 12, 768},  {"gpt2", 12, 12, 768},     {"gpt2-medium", 24, 16, 1024},
      {"gpt2-large", 36, 20, 1280}, {"gpt2-xl", 48, 25, 1600}, {"gopher-44m", 8, 16, 512},
      {"gpt-mini", 6, 6, 192},      {"gpt-micro", 4, 4, 128},  {"gpt-nano", 3, 3, 48}};
  return presets;
}

}  // namespace ddp::train
