// Weights from the folder of a GPT-2 or a BERT (model.safetensors, or the shards that
// model.safetensors.index.json lists), or from a snapshot of this trainer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/config/param_groups.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/load/pretrained_layout.h"
#include "trainer/model/ops/quantized_weight.h"
#include "trainer/optim/optimizer.h"

namespace ddp::train {

/// The layout of BertForMaskedLM and BertForPreTraining, without the pooler and the second head.
extern const PretrainedLayout kBertLayout;
/// The encoder of any BERT, with the pooler and the classifier if present.
extern const PretrainedLayout kBertClassifierLayout;
/// Adapters in a folder of peft's, with the layers of a text classifier if present.
extern const PretrainedLayout kPeftLayout;

/// Throws as load_pretrained() would, using only the headers of the folder's files, before a model
/// of these shapes takes memory. Snapshots describe themselves and are not read. `new_rows`: the
/// tables of tokens may have so many rows fewer there.
void check_pretrained(const std::string& folder, const PretrainedLayout& layout,
                      const std::vector<ParameterShape>& shapes, int64_t new_rows = 0);
/// The same for the model that `config` describes.
void check_pretrained(const std::string& folder, const CausalArchitecture& architecture,
                      const Config& config, int64_t vocab_size, int64_t new_rows = 0);

/// Copies the folder's weights into `parameters`, by name; position embeddings beyond theirs are
/// left out. A tied head may be present under its own name as well, or only so. float32, float16
/// and bfloat16 are supported, and weights quantized by bitsandbytes. Returns the names of missing
/// optional parameters. Throws UserError that lists each tensor that is missing, has another shape
/// or is unknown; then nothing has been copied. `folder` may be a snapshot, too.
std::vector<std::string> load_pretrained(const std::string& folder, PretrainedLayout layout,
                                         const std::vector<NamedTensor>& parameters);
/// The same by names and shapes alone: `take` receives the values of parameters[i], one after the
/// other, and `take_codes` weights that the folder has in codes; without it these are dequantized.
/// `new_rows`: so many further rows of the tables of tokens, at most, are the mean of those there,
/// and so are the last `new_tokens`, which may be padding there.
std::vector<std::string> load_pretrained(
    const std::string& folder, PretrainedLayout layout,
    const std::vector<ParameterShape>& parameters,
    const std::function<void(std::size_t i, const torch::Tensor& values)>& take,
    const std::function<void(std::size_t i, QuantizedWeight weight)>& take_codes = {},
    int64_t new_rows = 0, int64_t new_tokens = 0);

/// Whether a table with `there` rows holds one for each of `here` tokens and was padded, as Qwen's
/// to a multiple of 128; the further rows are of no token.
bool is_padded_table(int64_t there, int64_t here);

}  // namespace ddp::train
