#include "trainer/config/keys/key_rows.h"

namespace ddp::train {

std::vector<Field> gpt_fields() {
  return {
      {DDP_KEY(gpt, model_type), .null_means = NullMeans::kNotGiven,
       .default_text = "gpt2 when no sizes are given",
       .meaning = "Size preset: openai-gpt, gpt2, gpt2-medium, gpt2-large, gpt2-xl, gopher-44m, "
                  "gpt-mini, gpt-micro or gpt-nano. Set either this or the three sizes."},
      {DDP_KEY(gpt, n_layer), .range = kUpTo1e4, .null_means = NullMeans::kNotGiven,
       .default_text = "from model_type", .meaning = "Number of transformer blocks."},
      {DDP_KEY(gpt, n_head), .range = kUpTo1e4, .null_means = NullMeans::kNotGiven,
       .default_text = "from model_type",
       .meaning = "Attention heads per block; must divide n_embd."},
      {DDP_KEY(gpt, n_embd), .range = kUpTo1e6, .null_means = NullMeans::kNotGiven,
       .default_text = "from model_type", .meaning = "Model width (embedding size)."},
      {DDP_KEY(gpt, embd_pdrop), .range = kProbability, .unit = "probability",
       .null_means = NullMeans::kNotGiven, .default_text = "that of init_from, else 0.1",
       .meaning = "Dropout after the embeddings."},
      {DDP_KEY(gpt, resid_pdrop), .range = kProbability, .unit = "probability",
       .null_means = NullMeans::kNotGiven, .default_text = "that of init_from, else 0.1",
       .meaning = "Dropout before each residual addition."},
      {DDP_KEY(gpt, attn_pdrop), .range = kProbability, .unit = "probability",
       .null_means = NullMeans::kNotGiven, .default_text = "that of init_from, else 0.1",
       .meaning = "Dropout on the attention weights."},
      {DDP_KEY(gpt, activation),
       .meaning = "gelu is exact; gelu_tanh (also gelu_new) is GPT-2's approximation."},
      {DDP_KEY(gpt, tie_weights),
       .meaning = "Share the token embedding's matrix with the output layer."},
      {DDP_KEY(gpt, init_from), .null_means = NullMeans::kNotGiven,
       .meaning = "Pretrained model to start from: the folder of a GPT-2 (config.json, "
                  "model.safetensors, as saved by transformers) or a snapshot; sizes, activation "
                  "and tie_weights default to its own."},
      {DDP_KEY(gpt, activation_checkpointing), .null_means = NullMeans::kOff,
       .meaning = "Keep only each block's input and recompute the rest in the backward pass "
                  "(transformers: gradient_checkpointing): less memory, about a third more time."},
      {DDP_KEY(gpt, loss_chunk_size), .range = kStepCountOr0, .whole = true, .unit = "tokens",
       .null_means = NullMeans::kOff,
       .meaning = "Compute the loss in chunks of this many tokens, to limit the memory of the "
                  "logits; auto: chunks of 256 MiB; 0 or null: all at once."},
      {DDP_KEY(gpt, pad_vocab_to_multiple_of), .range = kStepCountOr0, .whole = true,
       .unit = "tokens", .null_means = NullMeans::kOff,
       .meaning = "In the loss, compute logits for so many tokens that their number is a multiple "
                  "of this, and leave out those that are not in the vocabulary; parameters and "
                  "files are as without. auto: 64 on a GPU, else off; 0 or null: off."},
      {DDP_KEY(gpt, fused_cpu_kernels),
       .meaning = "On CPUs, use trainer's own fused attention, dropout and GELU; false: torch's, "
                  "which are slower, sum in a different order and draw different dropout masks."},
  };
}

std::vector<Field> bert_fields() {
  return {
      {DDP_KEY(bert, family), .default_text = "that of init_from, else bert",
       .meaning = "Network: bert; roberta, whose positions begin after the padding's and whose "
                  "classifier has two layers; or distilbert, without token types and pooler."},
      {DDP_KEY(bert, model_type), .null_means = NullMeans::kNotGiven,
       .default_text = "bert-tiny when no sizes are given",
       .meaning = "Size preset: bert-tiny, bert-mini, bert-small, bert-medium or bert-base. Set "
                  "either this or the sizes."},
      {DDP_KEY(bert, n_layer), .range = kUpTo1e4, .null_means = NullMeans::kNotGiven,
       .default_text = "from model_type", .meaning = "Number of encoder layers."},
      {DDP_KEY(bert, n_head), .range = kUpTo1e4, .null_means = NullMeans::kNotGiven,
       .default_text = "from model_type",
       .meaning = "Attention heads per layer; must divide n_embd."},
      {DDP_KEY(bert, n_embd), .range = kUpTo1e6, .null_means = NullMeans::kNotGiven,
       .default_text = "from model_type", .meaning = "Model width (embedding size)."},
      {DDP_KEY(bert, intermediate), .range = kUpTo1e6, .null_means = NullMeans::kNotGiven,
       .default_text = "4 times n_embd", .meaning = "Inner width of the feed-forward layers."},
      {DDP_KEY(bert, type_vocab_size), .range = Range{0, 1e4},
       .default_text = "that of init_from, else bert: 2, roberta: 1, distilbert: 0",
       .meaning = "Rows of the table of token types."},
      {DDP_KEY(bert, position_offset), .range = Range{0, 1e6},
       .default_text = "that of init_from, else roberta: 2, others: 0",
       .meaning = "Row of the table of positions for a text's first token: for roberta the id of "
                  "the padding plus 1."},
      {DDP_KEY(bert, layer_norm_eps), .range = kAbove0,
       .default_text = "that of init_from, else 1e-12", .meaning = "Epsilon of the layer norms."},
      {DDP_KEY(bert, hidden_pdrop), .range = kProbability, .unit = "probability",
       .null_means = NullMeans::kNotGiven, .default_text = "that of init_from, else 0.1",
       .meaning = "Dropout after the embeddings and before each residual addition."},
      {DDP_KEY(bert, attn_pdrop), .range = kProbability, .unit = "probability",
       .null_means = NullMeans::kNotGiven, .default_text = "that of init_from, else 0.1",
       .meaning = "Dropout on the attention weights."},
      {DDP_KEY(bert, init_from), .null_means = NullMeans::kNotGiven,
       .meaning =
           "Pretrained model to start from: the folder of a BERT, RoBERTa or DistilBERT for masked "
           "language modelling or, for text_classification, for sequence classification "
           "(config.json, model.safetensors), or a snapshot of such a model; sizes and "
           "data_config.tokenizer default to its own."},
      {DDP_KEY(bert, problem_type),
       .default_text = "that of init_from, else "
                       "single_label_classification",
       .tasks = {TaskKind::kTextClassification},
       .meaning = "What a row's label is: one of several labels; multi_label_classification: any "
                  "number of them; regression: a number."},
      {DDP_KEY(bert, class_weights), .range = kAbove0, .null_means = NullMeans::kOff,
       .tasks = {TaskKind::kTextClassification},
       .meaning = "Weight of each class in the training loss: balanced (samples / (classes x "
                  "samples of the class)), or a list in the order of the labels; null: 1 for all."},
  };
}

std::vector<Field> image_fields() {
  constexpr Range kMostStages{1, 8};
  constexpr Range kSizes{1, 1e5};
  return {
      {DDP_KEY(image, network), .meaning = "dense: hidden layers; conv: stages of 3x3 convolution, "
                                           "ReLU and 2x2 max-pooling, then a hidden layer."},
      {DDP_KEY(image, n_layer), .range = kMostStages,
       .meaning = "Number of hidden layers (dense) or stages (conv)."},
      {DDP_KEY(image, width), .range = kSizes, .meaning = "Units per hidden layer."},
      {DDP_KEY(image, conv_channels), .range = Range{1, 4096},
       .meaning = "Channels of the first stage (conv); each further stage has twice as many."},
      {DDP_KEY(image, batch_norm),
       .meaning = "Batch normalization after each convolution: local normalizes over each rank's "
                  "micro-batch, synchronized over those of all ranks."},
      {DDP_KEY(image, dropout), .range = kProbability, .unit = "probability",
       .meaning = "Dropout after each hidden layer."},
      {DDP_KEY(image, size), .range = kSizes, .unit = "pixels",
       .default_text = "that of the images, which must all be the same",
       .meaning = "Width and height to which all images are resized."},
      {DDP_KEY(image, channels), .range = Range{1, 3}, .default_text = "that of the first image",
       .meaning = "1: grayscale, 3: RGB."},
      {DDP_KEY(image, pixel_mean), .range = Range{0, 1},
       .meaning = "Mean, subtracted from each pixel (0 to 1)."},
      {DDP_KEY(image, pixel_std), .range = kAbove0,
       .meaning = "Standard deviation, by which each pixel is then divided."},
      {DDP_KEY(image, augment_shift), .range = Range{0, 1e5}, .unit = "pixels",
       .null_means = NullMeans::kOff,
       .meaning = "Shift each training image by up to this many pixels in each direction, redrawn "
                  "each epoch."},
      {DDP_KEY(image, augment_flip), .null_means = NullMeans::kOff,
       .meaning =
           "Mirror each training image left to right with probability 1/2, redrawn each epoch."},
  };
}

std::vector<Field> lora_fields() {
  return {
      {DDP_KEY_AT("lora.rank", lora.rank), .range = Range{0, 1e4}, .null_means = NullMeans::kOff,
       .meaning = "Rank of low-rank adapters (LoRA), which are trained instead of the pretrained "
                  "model that init_from names; 0 or null: train the model itself."},
      {DDP_KEY_AT("lora.alpha", lora.alpha), .range = kAbove0,
       .meaning = "The adapters' outputs are scaled by alpha / rank."},
      {DDP_KEY_AT("lora.use_rslora", lora.use_rslora),
       .meaning = "Scale by alpha / sqrt(rank) instead (rank-stabilized LoRA)."},
      {DDP_KEY_AT("lora.dropout", lora.dropout), .range = kProbability, .unit = "probability",
       .meaning = "Dropout on the adapters' inputs."},
      {DDP_KEY_AT("lora.targets", lora.targets), .null_means = NullMeans::kNotGiven,
       .default_text = "peft's: gpt: [c_attn]; llama: [q_proj, v_proj], Phi-3: [qkv_proj]; bert: "
                       "[query, value]; "
                       "distilbert: [q_lin, v_lin]",
       .word_for_all = "all-linear",  // peft's name
       .meaning = "Linear layers that get an adapter, as shell patterns of their names or of the "
                  "ends of these after a dot: [q_proj, \"mlp.*\"]; all-linear or [\"*\"] is all of "
                  "them. The token embedding (wte, embed_tokens, word_embeddings) and the output "
                  "layer (lm_head) get one only by their names, without wildcards."},
      {DDP_KEY_AT("lora.init_from", lora.init_from), .null_means = NullMeans::kNotGiven,
       .meaning = "Folder of adapters to continue from, as peft's save_pretrained and trainer "
                  "export --format peft write it; rank, alpha and targets default to its own."},
      {DDP_KEY_AT("quantize.base", quantize.base),
       .meaning =
           "Hold the frozen weights of the linear layers under adapters (lora.rank) or virtual "
           "tokens (prompt_tuning.tokens) in fewer bits: nf4 (4 bits in blocks of 64, QLoRA) or "
           "int8 (8 bits, a scale for each "
           "output), with the codes of bitsandbytes."},
  };
}

std::vector<Field> preference_fields() {
  constexpr Range kBelowHalf{0, 0.5, false, true};
  return {
      {DDP_KEY(preference, loss_type),
       .meaning = "sigmoid: DPO's; robust: the same for labels of which a known share is wrong; "
                  "ipo: a squared loss, which pushes margins to a target and not beyond; orpo: "
                  "without a reference, learns the chosen answers, too."},
      {DDP_KEY(preference, beta), .range = kAbove0,
       .meaning = "Factor of the rewards: the larger, the closer the model stays to the reference; "
                  "of ipo the regularization, of orpo the weight of the odds ratio."},
      {DDP_KEY(preference, label_smoothing), .range = kBelowHalf, .unit = "probability",
       .meaning = "For sigmoid and robust: the share of pairs taken to be the wrong way round."},
  };
}

std::vector<Field> prompt_fields() {
  return {
      {DDP_KEY_AT("prompt_tuning.tokens", prompt_tuning.tokens), .range = Range{0, 1e6},
       .unit = "tokens", .null_means = NullMeans::kOff,
       .default_text = "0: off; prompt_tuning.init_from's",
       .meaning = "Virtual tokens in front of each sequence (prompt tuning), whose embeddings are "
                  "trained instead of the pretrained model that init_from names."},
      {DDP_KEY_AT("prompt_tuning.text", prompt_tuning.text), .null_means = NullMeans::kNotGiven,
       .default_text = "none: tokens drawn from the vocabulary",
       .meaning = "Text whose tokens' embeddings they start as, repeated or cut to their number."},
      {DDP_KEY_AT("prompt_tuning.init_from", prompt_tuning.init_from),
       .null_means = NullMeans::kNotGiven,
       .meaning = "Trained prompt to start from: a folder of peft (adapter_config.json, "
                  "adapter_model.safetensors)."},
  };
}

}  // namespace ddp::train
