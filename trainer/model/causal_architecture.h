// Describes a kind of causal model by its configuration alone: sizes, costs, the layout of its
// weights and the files of other programs. Does not use LibTorch; the network itself is a
// CausalModel.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/keys/config_checks.h"
#include "trainer/model/cost/training_cost.h"
#include "trainer/model/load/pretrained_layout.h"
#include "trainer/model/load/weights_layout.h"

namespace ddp::train {

struct Config;

/// A change of the configuration that reduces memory.
struct MemorySaver {
  std::string change;  ///< "gpt_config.activation_checkpointing=true"
  void (*apply)(Config& config);
};

/// Stateless; lives as long as the program and may be used by any thread.
class CausalArchitecture {
 public:
  virtual ~CausalArchitecture() = default;

  virtual std::string_view name() const = 0;

  /// Adds the section and the keys of the model, by ModelSections::add() and add_config_fields().
  virtual void add_keys() const {}
  /// Resolves presets and sizes, checks that they fit. Throws UserError.
  virtual void complete(Config& /*config*/, const Given& /*given*/) const {}
  /// The keys that fix the shapes of the weights: a snapshot with other values does not fit.
  virtual std::vector<std::string> shape_keys() const { return {"data_config.block_size"}; }
  /// "12 layers, 12 heads, 768 channels"
  virtual std::string describe(const Config& config) const = 0;
  /// Reduces `config` to a few narrow layers of the same operations, to warm up on.
  virtual void shrink(Config& /*config*/) const {}

  /// Whether several ranks can share its layers, as layout() divides them.
  virtual bool shares_layers() const { return false; }
  virtual WeightsLayout layout(const Config& config, int64_t vocab_size) const = 0;

  /// Floating-point operations for one token, forward and backward.
  virtual double flops_per_token(const Config& config, int64_t vocab_size) const = 0;
  virtual std::string_view flops_formula() const = 0;  ///< "6N + 12LHQT per token"
  /// Share of the forward pass that the backward pass computes once more; flops_per_token() does
  /// not count it.
  virtual double recomputed_share(const Config& /*config*/) const { return 0.0; }
  /// Whether the host reads from the device within a pass, which no CUDA graph can record.
  virtual bool waits_for_device(const Config& /*config*/) const { return false; }
  virtual std::vector<MemoryItem> memory_items(const Config& config, int64_t vocab_size,
                                               const ComputePlace& place) const = 0;
  /// Size of the vocabulary that the model of this name was published with; 0: unknown.
  virtual int64_t published_vocabulary(const Config& /*config*/) const { return 0; }
  virtual std::vector<MemorySaver> memory_savers() const { return {}; }

  /// The linear layers that `lora.targets` chooses by default, as in peft; empty: the network has
  /// no AdaptableLinear.
  virtual std::vector<std::string> lora_targets() const { return {}; }

  /// Folder or snapshot of the pretrained model to start from; "": none.
  virtual std::string pretrained(const Config& /*config*/) const { return ""; }
  /// Sets what pretrained() returns.
  virtual void start_from(Config& /*config*/, const std::string& /*path*/) const {}
  /// Makes `config` that of a model whose output layer has a matrix of its own.
  virtual void untie(Config& /*config*/) const {}
  /// The values of model_type in config.json of transformers that it reads and writes; empty:
  /// transformers has no such model, and the functions below are never called.
  virtual std::vector<std::string_view> model_types() const { return {}; }
  virtual const PretrainedLayout* huggingface_layout() const { return nullptr; }
  /// The text of config.json. `end_of_text`: the token's id, if the tokenizer has one.
  virtual std::string huggingface_config(const Config& /*config*/, int64_t /*vocab_size*/,
                                         std::optional<int32_t> /*end_of_text*/) const {
    return "";
  }
  /// Gives `config` the sizes and the context length of a folder's model. Throws UserError.
  virtual void take_folder(Config& /*config*/, const std::string& /*folder*/) const {}
};

/// Null if there is none of that name.
const CausalArchitecture* find_causal_architecture(std::string_view name);
/// The architecture that `config.model` names. Throws UserError if this trainer has none of that
/// name.
const CausalArchitecture& causal_architecture(const Config& config);
std::vector<const CausalArchitecture*> causal_architectures();
/// The architecture that reads a folder of transformers, by model_type in its config.json; null:
/// the folder is a BERT's. Throws UserError: no config.json, or a model_type that none reads.
const CausalArchitecture* architecture_of_folder(const std::string& folder);
/// Adds the keys of every architecture. Call it once, at the start of the program.
void add_model_keys();
/// Adds one that `model` can select. Not thread-safe: call it before
/// add_model_keys().
void add_causal_architecture(std::unique_ptr<const CausalArchitecture> architecture);

}  // namespace ddp::train
