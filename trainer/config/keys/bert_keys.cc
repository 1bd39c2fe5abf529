#include "trainer/config/keys/key_rows.h"

namespace ddp::train {

std::vector<Field> bert_fields() {
  return for_tasks(
      {TaskKind::kMaskedLm, TaskKind::kTextClassification},
      {
          {DDP_KEY(bert, model_type), .null_means = NullMeans::kNotGiven,
           .default_text = "bert-tiny when no sizes are given",
           .meaning = "Size preset: bert-tiny, bert-mini, bert-small, bert-medium or bert-base. "
                      "Set either this or the sizes."},
          {DDP_KEY(bert, n_layer), .range = kUpTo1e4, .null_means = NullMeans::kNotGiven,
           .default_text = "from model_type", .meaning = "Number of encoder layers."},
          {DDP_KEY(bert, n_head), .range = kUpTo1e4, .null_means = NullMeans::kNotGiven,
           .default_text = "from model_type",
           .meaning = "Attention heads per layer; must divide n_embd."},
          {DDP_KEY(bert, n_embd), .range = kUpTo1e6, .null_means = NullMeans::kNotGiven,
           .default_text = "from model_type", .meaning = "Model width (embedding size)."},
          {DDP_KEY(bert, intermediate), .range = kUpTo1e6, .null_means = NullMeans::kNotGiven,
           .default_text = "4 times n_embd", .meaning = "Inner width of the feed-forward layers."},
          {DDP_KEY(bert, hidden_pdrop), .range = kProbability, .unit = "probability",
           .meaning = "Dropout after the embeddings and before each residual addition."},
          {DDP_KEY(bert, attn_pdrop), .range = kProbability, .unit = "probability",
           .meaning = "Dropout on the attention weights."},
          {DDP_KEY(bert, init_from), .null_means = NullMeans::kNotGiven,
           .meaning = "Pretrained model to start from: the folder of a BertForMaskedLM or, for "
                      "text_classification, a BertForSequenceClassification (config.json, "
                      "model.safetensors), or a snapshot of such a model; sizes and "
                      "data_config.tokenizer default to its own."},
          {DDP_KEY(bert, class_weights), .range = kAbove0, .null_means = NullMeans::kOff,
           .tasks = {TaskKind::kTextClassification},
           .meaning =
               "Weight of each class in the training loss: balanced (samples / (classes x samples "
               "of the class)), or a list in the order of the labels; null: 1 for all."},
      });
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
