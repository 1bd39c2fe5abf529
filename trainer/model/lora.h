// Low-rank adapters of linear layers, by names and shapes alone: E. Hu et al., "LoRA: low-rank
// adaptation of large language models" (2021), with the names and initial values of peft's. No
// LibTorch in it.
//
// An adapter of a layer [out, in] is two matrices, lora_A [rank, in] and lora_B [out, rank]; it
// adds alpha / rank * lora_B lora_A x to the layer's output.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/config/param_groups.h"
#include "trainer/model/causal_architecture.h"

namespace ddp::train {

/// Resolves lora.targets and checks the section. Throws UserError: no pretrained model, a target
/// that matches no layer, other keys of `lora` without its rank.
void complete_lora(Config& config, const CausalArchitecture& architecture, const Given& given);

/// The linear layers that can have an adapter, by the shapes of a model without any: the names of
/// its hidden matrices, without ".weight", in the model's order.
std::vector<std::string> adaptable_layers(const std::vector<ParameterShape>& parameters);
std::vector<std::string> adaptable_layers(const WeightsLayout& layout);
/// The adaptable layers that `targets` select.
std::vector<std::string> adapted_layers(const std::vector<std::string>& targets,
                                        std::vector<std::string> adaptable);
/// Returns the parameters that adapters, or virtual tokens, add to a model with these, in the
/// model's order.
std::vector<ParameterShape> adapter_shapes(const Config& config,
                                           const std::vector<ParameterShape>& parameters);
/// The same for a model of that layout.
std::vector<ParameterShape> adapter_shapes(const Config& config, const WeightsLayout& layout);
/// As CausalArchitecture::flops_per_token(), with adapters, and without the gradients of the frozen
/// matrices: 4 for each of their weights, 6 for each of the adapters'. Virtual tokens count with
/// those of the text.
double flops_per_token_with_adapters(const Config& config, const CausalArchitecture& architecture,
                                     int64_t vocab_size);
/// Bytes that the adapters add to the model's own activations in one micro-batch, for the backward
/// pass: outputs of lora_A, and inputs after dropout with its masks.
double adapter_activation_bytes(const Config& config, const std::vector<ParameterShape>& parameters,
                                const ComputePlace& place);
/// Whether a parameter of that name is part of an adapter, or virtual tokens.
bool is_of_adapter(std::string_view parameter);

}  // namespace ddp::train
