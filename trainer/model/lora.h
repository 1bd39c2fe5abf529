// Low-rank adapters of linear layers and of the token embedding, by names and shapes alone: E. Hu
// et al., "LoRA: low-rank adaptation of large language models" (2021), with the names and initial
// values of peft's. No LibTorch in it.
//
// An adapter of a layer [out, in] is two matrices, lora_A [rank, in] and lora_B [out, rank]; it
// adds alpha / rank * lora_B lora_A x to the layer's output. The token embedding's are
// lora_embedding_A [rank, tokens] and lora_embedding_B [width, rank]. Where both share a table, the
// embedding and the output layer, `lm_head`, have adapters of their own. The rows of
// data_config.add_tokens in both tables are trained whole, as by peft's trainable_token_indices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/config/param_groups.h"
#include "trainer/model/causal_architecture.h"

namespace ddp::train {

/// The name, after its layer's, of rows [tokens, width] that are trained in place of a table's
/// last.
inline constexpr const char* kRowsOfTokens = "trainable_tokens_delta";

/// Resolves lora.targets and checks the section, after the model's. Throws UserError: no pretrained
/// model, a target that matches no layer, other keys of `lora` without its rank.
void complete_lora(Config& config, const Given& given);

/// The pretrained model that `config` starts from.
struct ModelBelow {
  std::string path;       ///< Folder or snapshot; "": none.
  std::string key;        ///< Configuration key of the path.
  std::string described;  ///< "model=gpt"
};
ModelBelow model_below(const Config& config);
/// Sets model_below().path.
void set_model_below(Config& config, const std::string& path);
/// The parameters of the model of `config` without adapters. `classes`: of a text classifier.
std::vector<ParameterShape> shapes_below(const Config& config, int64_t vocab_size,
                                         int64_t classes = 0);

/// The linear layers that can have an adapter by any target, and be quantized, by the shapes of a
/// model without adapters: the names of its hidden matrices, without ".weight", in the model's
/// order.
std::vector<std::string> adaptable_layers(const std::vector<ParameterShape>& parameters);
std::vector<std::string> adaptable_layers(const WeightsLayout& layout);
/// Whether a layer is part of an expert: quantized as any other, but, as in peft, which finds
/// experts as one tensor, no target of adapters.
bool is_of_expert(std::string_view layer);
/// The token embedding or the output layer, which only targets without wildcards select.
bool is_of_tokens(std::string_view layer);
/// adaptable_layers() without experts, the token embedding before them and the output layer after;
/// with layers that are one in transformers' files, Phi-3's qkv_proj, after their parts.
std::vector<std::string> target_layers(const Config& config,
                                       const std::vector<ParameterShape>& parameters);
/// The `layers` that `targets` select, without those of experts and parts of a selected one.
std::vector<std::string> adapted_layers(const std::vector<std::string>& targets,
                                        std::vector<std::string> layers);
/// The factor of the adapters' outputs.
double adapter_scale(const LoraConfig& lora);
/// Returns the parameters that adapters, or virtual tokens, add to a model with these, in the
/// model's order, and with adapters a text classifier's own layers, which are trained with them.
std::vector<ParameterShape> adapter_shapes(const Config& config,
                                           const std::vector<ParameterShape>& parameters);
/// The same for a model of that layout.
std::vector<ParameterShape> adapter_shapes(const Config& config, const WeightsLayout& layout);
/// As CausalArchitecture::flops_per_token(), with adapters, and without the gradients of the frozen
/// matrices: 4 for each of their weights, 6 for each of the adapters'. Virtual tokens count with
/// those of the text.
double flops_per_token_with_adapters(const Config& config, const CausalArchitecture& architecture,
                                     int64_t vocab_size);
/// What adapters add to the operations for one token: 6 for each of their weights; rows that are
/// looked up cost nothing. Each of `frozen` weights, which get no gradient, saves 2.
double adapter_flops(const Config& config, const std::vector<ParameterShape>& parameters,
                     double frozen);
/// Bytes that the adapters add to the model's own activations in one micro-batch, for the backward
/// pass: outputs of lora_A, and inputs after dropout with its masks.
double adapter_activation_bytes(const Config& config, const std::vector<ParameterShape>& parameters,
                                const ComputePlace& place);
/// Bytes of a weight in `format`; 0 if it is not quantized: no matrix of an adaptable layer.
int64_t quantized_bytes(const ParameterShape& weight, BaseFormat format);
/// Whether a parameter of that name is part of an adapter, or virtual tokens.
bool is_of_adapter(std::string_view parameter);
/// Whether a run with adapters trains it: it is_of_adapter(), or is_of_classifier().
bool is_trained_with_adapters(std::string_view parameter);

}  // namespace ddp::train
