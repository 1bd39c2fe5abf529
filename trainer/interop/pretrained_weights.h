// Weights from the folder of a GPT-2 or a BERT (model.safetensors, or the shards that
// model.safetensors.index.json lists), or from a snapshot of this trainer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/optim/optimizer.h"

namespace ddp::train {

/// How a model of transformers names and lays out its tensors.
struct PretrainedLayout {
  const char* key;  ///< The configuration key that names the folder.
  /// This trainer's name for one of theirs; "": it is no parameter here.
  std::string (*own_name)(const std::string& theirs);
  bool (*is_transposed)(std::string_view own_name);
  /// Parts that a folder may lack, and may have although nobody asks for them.
  bool (*is_optional)(std::string_view own_name);
  const char* positions;    ///< How the name of the position embeddings ends.
  const char* words;        ///< And that of the token embeddings.
  const char* how_to_make;  ///< What to do where a folder has no safetensors.
};
/// Of GPT2LMHeadModel and GPT2Model.
extern const PretrainedLayout kGpt2Layout;
/// Of BertForMaskedLM and BertForPreTraining, whose pooler and second head are left out.
extern const PretrainedLayout kBertLayout;
/// The encoder of any BERT, with the pooler and the classifier where they are there.
extern const PretrainedLayout kBertClassifierLayout;

/// Copies the folder's weights into `parameters`, by name; position embeddings beyond theirs are
/// left out. float32, float16 and bfloat16 are read. Returns the names of the optional parameters
/// that are not there. Throws UserError that lists each tensor that is missing, has
/// another shape or is not known; nothing has been copied then. `folder` may be a snapshot, too.
std::vector<std::string> load_pretrained(const std::string& folder, PretrainedLayout layout,
                                         const std::vector<NamedTensor>& parameters);

}  // namespace ddp::train
