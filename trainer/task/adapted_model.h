// A pretrained model with the adapters of a run with lora.rank, or the virtual tokens of one with
// prompt_tuning: the trained parameters, the contents of snapshots, and their reference to the
// rest.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/model/causal_model.h"
#include "trainer/model/model_parameter.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

struct Config;
class BertForSequenceClassificationImpl;

/// Metadata key of a snapshot of adapters: the digest of the pretrained model that they belong to,
/// whose path is the configuration's init_from.
inline constexpr const char* kBaseDigest = "lora_base";

/// Returns the parameters in `all` that a run trains, in its order: the adapters with a text
/// classifier's own layers if there are any, else all.
std::vector<Parameter> trainable_parameters(const std::vector<ModelParameter>& all);

/// The same of the whole model's shapes, of which this process may hold a part.
std::vector<ParameterShape> trainable_shapes(std::vector<ParameterShape> all);

/// The digest in a snapshot's metadata; "": none.
std::string stored_base_digest(const std::map<std::string, std::string>* metadata);

/// Call before the model is built. Throws UserError if the model of init_from is missing, or has
/// other shapes than `config` of a causal_lm.
void check_base(const Config& config, int64_t vocab_size);

/// Loads the weights of init_from into `model`, if set, freezes them, quantizes those of linear
/// layers as quantize.base says, and adds adapters with initial values from `seed`, or those of
/// lora.init_from. The last rows of tables of tokens, one for each of data_config.add_tokens, are
/// trained next to them; `new_tokens`: as load_pretrained()'s. `expected`: the digest in the
/// snapshot whose adapters are about to be loaded, else "". Returns the digest of the frozen
/// weights: XXH3-128 over their names, shapes and values, independent of their files and before
/// they are quantized. Throws UserError if the pretrained model is missing, or is not the
/// snapshot's.
std::string add_adapters_to_base(torch::nn::Module& model, const Config& config,
                                 std::optional<uint64_t> seed, const std::string& expected,
                                 int64_t new_tokens = 0);
/// The same with the virtual tokens of prompt_tuning: from its text, its init_from, or tokens drawn
/// by `seed`.
std::string add_prompt_to_base(CausalModel& model, const Config& config, const Tokenizer& tokenizer,
                               std::optional<uint64_t> seed, const std::string& expected);
std::string add_prompt_to_base(BertForSequenceClassificationImpl& model, const Config& config,
                               const Tokenizer& tokenizer, std::optional<uint64_t> seed,
                               const std::string& expected);

/// Returns the weights of a plain model equivalent to `model` with its adapters: an untied one if
/// the token embedding or a tied output layer has any.
std::vector<NamedTensor> merged_weights(const torch::nn::Module& model);

/// A collective. Throws UserError if the ranks have read different pretrained models.
void check_same_base(const std::string& digest, const Config& config, ProcessGroup& group);

/// "LoRA: rank 8, alpha 16, dropout 0 on 60 layers (q_proj, v_proj); trained: 0.34 % of ..." or
/// "Prompt tuning: 20 virtual tokens, ..." `trained`: Task::whole_shapes(); `all`: the number of
/// the model's parameters.
std::string describe_adapters(const std::vector<ParameterShape>& trained, const Config& config,
                              int64_t all);

}  // namespace ddp::train
