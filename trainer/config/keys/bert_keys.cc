#include "trainer/config/keys/bert_keys.h"

namespace ddp::train {
namespace {

constexpr Range kBertCounts{1, 1e4};
constexpr Range kBertWidths{1, 1e6};
constexpr Range kBertDropout{0, 1, false, true};

}  // namespace

#define DDP_BERT_MEMBER(member) [](Config& c) -> FieldPointer { return &c.member; }

std::vector<Field> bert_fields() {
  return {
      {"bert_config.model_type", DDP_BERT_MEMBER(bert.model_type), Range{}, NullMeans::kNotGiven,
       "bert-tiny when no sizes are given", "",
       "Size preset: bert-tiny, bert-mini, bert-small, bert-medium or bert-base. Set either this "
       "or "
       "the sizes."},
      {"bert_config.n_layer", DDP_BERT_MEMBER(bert.n_layer), kBertCounts, NullMeans::kNotGiven,
       "from model_type", "", "Number of encoder layers."},
      {"bert_config.n_head", DDP_BERT_MEMBER(bert.n_head), kBertCounts, NullMeans::kNotGiven,
       "from model_type", "", "Attention heads per layer; must divide n_embd."},
      {"bert_config.n_embd", DDP_BERT_MEMBER(bert.n_embd), kBertWidths, NullMeans::kNotGiven,
       "from model_type", "", "Model width (embedding size)."},
      {"bert_config.intermediate", DDP_BERT_MEMBER(bert.intermediate), kBertWidths,
       NullMeans::kNotGiven, "4 times n_embd", "", "Width within the feed-forward layers."},
      {"bert_config.hidden_pdrop", DDP_BERT_MEMBER(bert.hidden_pdrop), kBertDropout,
       NullMeans::kError, "", "probability",
       "Dropout after the embeddings and before each residual addition."},
      {"bert_config.attn_pdrop", DDP_BERT_MEMBER(bert.attn_pdrop), kBertDropout, NullMeans::kError,
       "", "probability", "Dropout on the attention weights."},
      {"bert_config.init_from", DDP_BERT_MEMBER(bert.init_from), Range{}, NullMeans::kNotGiven, "",
       "",
       "Folder of a BertForMaskedLM (config.json, model.safetensors) to start from; the sizes "
       "follow "
       "it, and so does the tokenizer unless data_config.tokenizer names one."},
  };
}

#undef DDP_BERT_MEMBER

const std::vector<ModelPreset>& bert_presets() {
  static const std::vector<ModelPreset> presets = {{"bert-tiny", 2, 2, 128},
                                                   {"bert-mini", 4, 4, 256},
                                                   {"bert-small", 4, 8, 512},
                                                   {"bert-medium", 8, 8, 512},
                                                   {"bert-base", 12, 12, 768}};
  return presets;
}

}  // namespace ddp::train
