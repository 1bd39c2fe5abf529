#include "trainer/config/keys/key_rows.h"

namespace ddp::train {
std::vector<Field> bert_fields() {
  return {
      {"bert_config.model_type", DDP_MEMBER(bert.model_type), kAnyValue, NullMeans::kNotGiven,
       "bert-tiny when no sizes are given", "",
       "Size preset: bert-tiny, bert-mini, bert-small, bert-medium or bert-base. Set either this "
       "or "
       "the sizes."},
      {"bert_config.n_layer", DDP_MEMBER(bert.n_layer), kUpTo1e4, NullMeans::kNotGiven,
       "from model_type", "", "Number of encoder layers."},
      {"bert_config.n_head", DDP_MEMBER(bert.n_head), kUpTo1e4, NullMeans::kNotGiven,
       "from model_type", "", "Attention heads per layer; must divide n_embd."},
      {"bert_config.n_embd", DDP_MEMBER(bert.n_embd), kUpTo1e6, NullMeans::kNotGiven,
       "from model_type", "", "Model width (embedding size)."},
      {"bert_config.intermediate", DDP_MEMBER(bert.intermediate), kUpTo1e6, NullMeans::kNotGiven,
       "4 times n_embd", "", "Width within the feed-forward layers."},
      {"bert_config.hidden_pdrop", DDP_MEMBER(bert.hidden_pdrop), kProbability, NullMeans::kError,
       "", "probability", "Dropout after the embeddings and before each residual addition."},
      {"bert_config.attn_pdrop", DDP_MEMBER(bert.attn_pdrop), kProbability, NullMeans::kError, "",
       "probability", "Dropout on the attention weights."},
      {"bert_config.init_from", DDP_MEMBER(bert.init_from), kAnyValue, NullMeans::kNotGiven, "", "",
       "Folder of a BertForMaskedLM or, for text_classification, a BertForSequenceClassification "
       "(config.json, model.safetensors), or a snapshot of such a model, to start from; the sizes "
       "follow it, and so does the tokenizer unless data_config.tokenizer names one."},
      {"bert_config.class_weights", DDP_MEMBER(bert.class_weights), kAbove0, NullMeans::kOff, "",
       "",
       "What a text of each class counts for in the training loss: balanced (samples / (classes x "
       "samples of the class)), or numbers in the order of the labels; null: 1."},
  };
}

const std::vector<ModelPreset>& bert_presets() {
  static const std::vector<ModelPreset> presets = {{"bert-tiny", 2, 2, 128},
                                                   {"bert-mini", 4, 4, 256},
                                                   {"bert-small", 4, 8, 512},
                                                   {"bert-medium", 8, 8, 512},
                                                   {"bert-base", 12, 12, 768}};
  return presets;
}

}  // namespace ddp::train
