#include "trainer/config/keys/key_rows.h"

namespace ddp::train {

std::vector<Field> gpt_fields() {
  return for_tasks(
      {TaskKind::kCausalLm},
      {
          {DDP_KEY(gpt, model_type), .null_means = NullMeans::kNotGiven,
           .default_text = "gpt2 when no sizes are given",
           .meaning =
               "Size preset: openai-gpt, gpt2, gpt2-medium, gpt2-large, gpt2-xl, gopher-44m, "
               "gpt-mini, gpt-micro or gpt-nano. Set either this or the three sizes."},
          {DDP_KEY(gpt, n_layer), .range = kUpTo1e4, .null_means = NullMeans::kNotGiven,
           .default_text = "from model_type", .meaning = "Number of transformer blocks."},
          {DDP_KEY(gpt, n_head), .range = kUpTo1e4, .null_means = NullMeans::kNotGiven,
           .default_text = "from model_type",
           .meaning = "Attention heads per block; must divide n_embd."},
          {DDP_KEY(gpt, n_embd), .range = kUpTo1e6, .null_means = NullMeans::kNotGiven,
           .default_text = "from model_type", .meaning = "Model width (embedding size)."},
          {DDP_KEY(gpt, embd_pdrop), .range = kProbability, .unit = "probability",
           .meaning = "Dropout after the embeddings."},
          {DDP_KEY(gpt, resid_pdrop), .range = kProbability, .unit = "probability",
           .meaning = "Dropout before each residual addition."},
          {DDP_KEY(gpt, attn_pdrop), .range = kProbability, .unit = "probability",
           .meaning = "Dropout on the attention weights."},
          {DDP_KEY(gpt, activation),
           .meaning = "gelu is exact; gelu_tanh (also gelu_new) is GPT-2's approximation."},
          {DDP_KEY(gpt, tie_weights),
           .meaning = "Share the token embedding's matrix with the output layer."},
          {DDP_KEY(gpt, init_from), .null_means = NullMeans::kNotGiven,
           .meaning =
               "Folder of a pretrained GPT-2 to start from (config.json, model.safetensors, as "
               "saved by transformers); sizes, activation and tie_weights default to its own."},
          {DDP_KEY(gpt, activation_checkpointing), .null_means = NullMeans::kOff,
           .meaning =
               "Keep only each block's input and recompute the rest in the backward pass "
               "(transformers: gradient_checkpointing): less memory, about a third more time."},
          {DDP_KEY(gpt, loss_chunk_size), .range = kStepCountOr0, .unit = "tokens",
           .null_means = NullMeans::kOff,
           .meaning = "Compute the loss in chunks of this many tokens, to limit the memory of the "
                      "logits; auto: chunks of 256 MiB; 0 or null: all at once."},
          {DDP_KEY(gpt, pad_vocab_to_multiple_of), .range = kStepCountOr0, .unit = "tokens",
           .null_means = NullMeans::kOff,
           .meaning =
               "In the loss, compute logits for so many tokens that their number is a multiple of "
               "this, and leave out those that are not in the vocabulary; parameters and files are "
               "as without. auto: 64 on a GPU, else off; 0 or null: off."},
          {DDP_KEY(gpt, fused_cpu_kernels),
           .meaning =
               "On CPUs, use trainer's own fused attention, dropout and GELU; false: torch's, "
               "which are slower, sum in a different order and draw different dropout masks."},
      });
}

const std::vector<ModelPreset>& model_presets() {
  static const std::vector<ModelPreset> presets = {
      {"openai-gpt", 12, 12, 768},  {"gpt2", 12, 12, 768},     {"gpt2-medium", 24, 16, 1024},
      {"gpt2-large", 36, 20, 1280}, {"gpt2-xl", 48, 25, 1600}, {"gopher-44m", 8, 16, 512},
      {"gpt-mini", 6, 6, 192},      {"gpt-micro", 4, 4, 128},  {"gpt-nano", 3, 3, 48}};
  return presets;
}

}  // namespace ddp::train
