#include "trainer/model/llama/llama_architecture.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/config/config.h"
#include "trainer/model/llama/llama_config.h"
#include "trainer/model/llama/llama_cost.h"
#include "trainer/model/llama/llama_pretrained.h"
#include "trainer/model/llama/llama_types.h"

namespace ddp::train {
namespace {

class LlamaArchitecture : public CausalArchitecture {
 public:
  std::string_view name() const override { return "llama"; }
  void add_keys() const override { add_llama_keys(); }
  void complete(Config& config, const Given& given) const override {
    complete_llama(llama_of(config), given);
  }

  std::vector<std::string> shape_keys() const override {
    return {"llama_config.n_layer",     "llama_config.n_head",   "llama_config.n_kv_head",
            "llama_config.n_embd",      "llama_config.head_dim", "llama_config.intermediate",
            "llama_config.tie_weights", "llama_config.qkv_bias", "llama_config.qk_norm",
            "llama_config.family",      "llama_config.n_expert", "data_config.block_size"};
  }

  int64_t published_vocabulary(const Config& config) const override {
    return train::published_vocabulary(llama_of(config).model_type);
  }

  std::string describe(const Config& config) const override {
    const LlamaConfig& llama = llama_of(config);
    return fmt::format("Llama of {} layers, {} heads, {} key-value heads, {} channels",
                       llama.n_layer, llama.n_head, llama.n_kv_head, llama.n_embd) +
           (llama.n_expert == 0 ? ""
                                : fmt::format(", {} experts, {} for each token", llama.n_expert,
                                              llama.n_expert_per_token));
  }

  void shrink(Config& config) const override {
    constexpr int64_t kLayers = 2, kHeads = 2, kHeadDim = 16, kInner = 64, kExperts = 4;
    LlamaConfig& llama = llama_of(config);
    llama.n_layer = std::min(llama.n_layer, kLayers);
    llama.n_head = kHeads;
    llama.n_kv_head = 1;
    llama.head_dim = kHeadDim;
    llama.n_embd = kHeads * kHeadDim;
    llama.intermediate = kInner;
    llama.n_expert = std::min(llama.n_expert, kExperts);
    llama.n_expert_per_token = std::min(llama.n_expert_per_token, llama.n_expert);
    llama.init_from.clear();
  }

  bool shares_layers() const override { return true; }
  WeightsLayout layout(const Config& config, int64_t vocab_size) const override {
    return llama_layout(llama_of(config), vocab_size);
  }
  double flops_per_token(const Config& config, int64_t vocab_size) const override {
    return llama_flops_per_token(llama_of(config), vocab_size, config.positions());
  }
  std::string_view flops_formula() const override { return "6N + 12LHQT per token"; }
  double recomputed_share(const Config& config) const override {
    return llama_of(config).activation_checkpointing ? 1.0 : 0.0;
  }
  bool waits_for_device(const Config& config) const override {
    return llama_of(config).n_expert > 0;
  }
  std::vector<MemoryItem> memory_items(const Config& config, int64_t vocab_size,
                                       const ComputePlace& place) const override {
    return llama_memory_items(config, vocab_size, place);
  }
  std::vector<MemorySaver> memory_savers() const override {
    return {{"llama_config.activation_checkpointing=true",
             [](Config& config) { llama_of(config).activation_checkpointing = true; }}};
  }

  std::vector<std::string> lora_targets() const override { return {"q_proj", "v_proj"}; }

  std::string pretrained(const Config& config) const override { return llama_of(config).init_from; }
  void start_from(Config& config, const std::string& path) const override {
    llama_of(config).init_from = path;
  }
  void untie(Config& config) const override { llama_of(config).tie_weights = false; }

  std::vector<std::string_view> model_types() const override {
    std::vector<std::string_view> names;
    for (const LlamaType& type : llama_types()) names.push_back(type.model_type);
    return names;
  }
  const PretrainedLayout* huggingface_layout() const override { return &kLlamaLayout; }
  std::string huggingface_config(const Config& config, int64_t vocab_size,
                                 std::optional<int32_t> end_of_text) const override {
    return llama_config_json(llama_of(config), vocab_size, config.data.block_size, end_of_text);
  }
  void take_folder(Config& config, const std::string& folder) const override {
    config.data.block_size = read_pretrained_llama(folder).positions;
    llama_of(config).init_from = folder;
    complete(config, Given({}, folder));
  }
};

}  // namespace

std::unique_ptr<const CausalArchitecture> llama_architecture() {
  return std::make_unique<LlamaArchitecture>();
}

}  // namespace ddp::train
