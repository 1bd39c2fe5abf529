// Weights from the folder of a GPT-2 or a BERT (model.safetensors, or the shards that
// model.safetensors.index.json lists), or from a snapshot of this trainer.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "trainer/config/param_groups.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/load/pretrained_layout.h"
#include "trainer/optim/optimizer.h"

namespace ddp::train {

/// The layout of BertForMaskedLM and BertForPreTraining, without the pooler and the second head.
extern const PretrainedLayout kBertLayout;
/// The encoder of any BERT, with the pooler and the classifier where they are there.
extern const PretrainedLayout kBertClassifierLayout;

/// What load_pretrained() refuses, from the headers of the folder's files alone: before a model of
/// these shapes takes memory. Snapshots describe themselves and are not read.
void check_pretrained(const std::string& folder, const PretrainedLayout& layout,
                      const std::vector<ParameterShape>& shapes);
/// The same for the model that `config` describes.
void check_pretrained(const std::string& folder, const CausalArchitecture& architecture,
                      const Config& config, int64_t vocab_size);

/// Copies the folder's weights into `parameters`, by name; position embeddings beyond theirs are
/// left out. A tied head may be there under its own name as well, or alone. float32, float16 and
/// bfloat16 are read. Returns the names of the optional parameters that are not there. Throws
/// UserError that lists each tensor that is missing, has another shape or is not known; nothing has
/// been copied then. `folder` may be a snapshot, too.
std::vector<std::string> load_pretrained(const std::string& folder, PretrainedLayout layout,
                                         const std::vector<NamedTensor>& parameters);
/// The same without memory for `parameters`, which are only asked for their names and shapes before
/// the first value is there: `take` gets those of parameters[i], one after the other.
std::vector<std::string> load_pretrained(
    const std::string& folder, PretrainedLayout layout, const std::vector<NamedTensor>& parameters,
    const std::function<void(std::size_t i, const torch::Tensor& values)>& take);

}  // namespace ddp::train
