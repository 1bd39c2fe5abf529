// A pretrained model's configuration: config.json written by save_pretrained of transformers'
// GPT2LMHeadModel, or BertForMaskedLM, BertForSequenceClassification and their like of RoBERTa and
// DistilBERT, or a snapshot.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/model_config.h"

namespace ddp::train {

struct Config;

/// The shape of a pretrained model.
struct PretrainedSizes {
  int64_t n_layer = 0;
  int64_t n_head = 0;
  int64_t n_embd = 0;
  int64_t positions = 0;
  /// Settings that this trainer's model cannot represent: "layer_norm_epsilon is 1e-06, not 1e-05".
  std::vector<std::string> unsupported;
  std::string head_note{};  ///< See own_head_note().
};

struct PretrainedGpt : PretrainedSizes {
  std::optional<Activation> activation;  ///< None: an activation that this model does not have.
  bool tie_weights = true;
  double embd_pdrop = 0.1;
  double resid_pdrop = 0.1;
  double attn_pdrop = 0.1;
};

struct PretrainedBert : PretrainedSizes {
  BertConfig shape;  ///< Family, sizes, dropout, problem_type; the rest has no meaning.
  double classifier_pdrop = 0.1;    ///< Before the classifier's last layer.
  std::vector<std::string> labels;  ///< Its classifier's labels, by number; empty: no classifier.
  std::string tokenizer_state;      ///< A snapshot's; a folder has files.
};

/// `path`: a folder, or a snapshot of causal_lm. Throws UserError: no such folder or file, not
/// JSON, not a GPT-2.
PretrainedGpt read_pretrained_gpt(const std::string& path);

/// The metadata of a snapshot of causal_lm, its task's included. Throws UserError: not such a
/// snapshot.
std::map<std::string, std::string> causal_snapshot_metadata(const std::string& path);

/// `path`: a folder, or a snapshot of masked_lm or text_classification. Throws UserError: no such
/// folder or file, not JSON, not a BERT of one of the families.
PretrainedBert read_pretrained_bert(const std::string& path);

/// Each difference in a few words: "n_layer is 12 there, 8 here". Empty when it fits.
std::vector<std::string> differences_from(const PretrainedGpt& pretrained, const GptConfig& gpt,
                                          const Config& config);
std::vector<std::string> differences_from(const PretrainedBert& pretrained, const BertConfig& bert,
                                          const Config& config);

}  // namespace ddp::train
