// What the tasks that train a BERT have in common: its vocabulary, parameters and padding.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/bert_row.h"
#include "trainer/data/text_lines.h"
#include "trainer/model/bert_cost.h"
#include "trainer/model/gpt.h"
#include "trainer/optim/optimizer.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// Metadata key of the tokenizer's state.
inline constexpr const char* kTokenizerState = "tokenizer";

/// The tokenizer of the configuration, else that of `metadata`, of the snapshot to resume from,
/// else that of bert_config.init_from. Throws UserError.
std::unique_ptr<Tokenizer> open_bert_tokenizer(const Config& config,
                                               const std::map<std::string, std::string>* metadata);

/// Of a snapshot with this metadata. Throws RunError when there is none or it is damaged.
std::unique_ptr<Tokenizer> tokenizer_of_bert(const std::map<std::string, std::string>& metadata);

/// Throws UserError when a snapshot with this metadata has another vocabulary.
void check_same_vocabulary(const std::map<std::string, std::string>& metadata,
                           const std::string& snapshot, const Tokenizer& tokenizer,
                           const Config& config);

/// The id of a token that the vocabulary must have. Throws UserError.
int32_t required_token(const Tokenizer& tokenizer, const char* token);
/// [PAD], [CLS] and [SEP]. Throws UserError that names what is lacking.
BertTokens bert_tokens(const Tokenizer& tokenizer);

/// What the arithmetic of a training needs to know: of these lines, in rows of at most
/// `block_size`.
BertSizes bert_sizes(const TextLines& lines, int64_t block_size, int64_t vocab_size);

/// Which positions are no padding, bool [B, T]; and both cut behind the last of them.
struct SeenTokens {
  torch::Tensor tokens_BT;
  torch::Tensor seen_BT;
};
SeenTokens without_padding(const torch::Tensor& tokens_BT, int64_t pad);

/// For the optimizer: those of the encoder's layers are hidden.
std::vector<Parameter> bert_optimizer_parameters(const std::vector<ModelParameter>& parameters);
std::vector<NamedTensor> named_tensors(const std::vector<ModelParameter>& parameters);
/// The keys that fix the shapes of its tensors.
std::vector<std::string> bert_shape_keys();
/// "Model: BERT, 2 layers, ...": for the start of the log.
std::string describe_bert(const BertConfig& bert, int64_t parameters);

}  // namespace ddp::train
