#include "trainer/config/keys/key_rows.h"
#include "trainer/model/llama/llama_config.h"

namespace ddp::train {
namespace {

std::vector<Field> llama_size_fields() {
  return {
      {DDP_MODEL_KEY(llama, LlamaConfig, model_type), .null_means = NullMeans::kNotGiven,
       .default_text = "smollm2-135m when no sizes are given",
       .meaning =
           "Preset: llama-2-7b, llama-2-13b, llama-3-8b, llama-3.1-8b, llama-3.2-1b, "
           "llama-3.2-3b, tinyllama-1.1b, smollm2-135m, smollm2-360m, smollm2-1.7b, "
           "qwen2.5-0.5b, qwen2.5-1.5b, qwen2.5-3b, qwen2.5-7b, qwen3-0.6b, qwen3-1.7b, "
           "qwen3-4b, qwen3-8b, mistral-7b, phi-3-mini-4k, gemma-2-2b, gemma-2-9b, gemma-3-1b, "
           "mixtral-8x7b, qwen3-30b-a3b or llama-mini. Set either this or n_layer, n_head and "
           "n_embd; "
           "the other keys of the shape override the preset's."},
      {DDP_MODEL_KEY(llama, LlamaConfig, n_layer), .range = kUpTo1e4,
       .null_means = NullMeans::kNotGiven, .default_text = "from model_type",
       .meaning = "Number of transformer blocks."},
      {DDP_MODEL_KEY(llama, LlamaConfig, n_head), .range = kUpTo1e4,
       .null_means = NullMeans::kNotGiven, .default_text = "from model_type",
       .meaning = "Query heads per block."},
      {DDP_MODEL_KEY(llama, LlamaConfig, n_kv_head), .range = kUpTo1e4,
       .null_means = NullMeans::kNotGiven, .default_text = "n_head",
       .meaning = "Key and value heads per block (grouped-query attention); must divide n_head."},
      {DDP_MODEL_KEY(llama, LlamaConfig, n_embd), .range = kUpTo1e6,
       .null_means = NullMeans::kNotGiven, .default_text = "from model_type",
       .meaning = "Model width (embedding size)."},
      {DDP_MODEL_KEY(llama, LlamaConfig, head_dim), .range = kUpTo1e4,
       .null_means = NullMeans::kNotGiven, .default_text = "n_embd / n_head",
       .meaning = "Width of a head; must be even."},
      {DDP_MODEL_KEY(llama, LlamaConfig, intermediate), .range = kUpTo1e6,
       .null_means = NullMeans::kNotGiven, .default_text = "8/3 n_embd, to a multiple of 64",
       .meaning = "Inner width of the feed-forward layers (SwiGLU), of each expert."},
  };
}

std::vector<Field> llama_shape_fields() {
  return {
      {DDP_MODEL_KEY(llama, LlamaConfig, rope_theta), .range = kAbove0,
       .meaning = "Base of the rotary position embeddings."},
      {DDP_MODEL_KEY(llama, LlamaConfig, rope_scaling.rope_type),
       .meaning = "How rotary embeddings are scaled: default (not at all), linear, llama3, yarn "
                  "or dynamic. The keys of rope_scaling are those in config.json of transformers."},
      {DDP_MODEL_KEY(llama, LlamaConfig, rope_scaling.factor), .range = kAbove0,
       .meaning = "Frequencies are divided by this (linear; llama3 and yarn: low frequencies only; "
                  "dynamic: by the text's length)."},
      {DDP_MODEL_KEY(llama, LlamaConfig, rope_scaling.low_freq_factor), .range = kAbove0,
       .meaning =
           "llama3: wavelengths above original_max_position_embeddings / low_freq_factor are "
           "scaled."},
      {DDP_MODEL_KEY(llama, LlamaConfig, rope_scaling.high_freq_factor), .range = kAbove0,
       .meaning = "llama3: wavelengths below original_max_position_embeddings / high_freq_factor "
                  "are not scaled."},
      {DDP_MODEL_KEY(llama, LlamaConfig, rope_scaling.original_max_position_embeddings),
       .range = kUpTo1e9, .unit = "tokens",
       .meaning = "llama3, yarn, dynamic: context length of pretraining."},
      {DDP_MODEL_KEY(llama, LlamaConfig, rope_scaling.attention_factor), .range = kAtLeast0,
       .meaning = "yarn: cosines and sines are multiplied by it; 0: by 0.1 ln(factor) + 1."},
      {DDP_MODEL_KEY(llama, LlamaConfig, rope_scaling.beta_fast), .range = kAbove0,
       .meaning = "yarn: frequencies of more turns within the original context are not scaled."},
      {DDP_MODEL_KEY(llama, LlamaConfig, rope_scaling.beta_slow), .range = kAbove0,
       .meaning = "yarn: frequencies of fewer turns are divided by the factor."},
      {DDP_MODEL_KEY(llama, LlamaConfig, norm_eps), .range = kAbove0,
       .meaning = "Added to the mean square in RMSNorm."},
      {DDP_MODEL_KEY(llama, LlamaConfig, tie_weights),
       .meaning = "Share the token embedding's matrix with the output layer."},
      {DDP_MODEL_KEY(llama, LlamaConfig, qkv_bias),
       .meaning = "Biases in the query, key and value projections (Qwen2)."},
      {DDP_MODEL_KEY(llama, LlamaConfig, qk_norm),
       .meaning = "RMSNorm of each query and key head (Qwen3)."},
      {DDP_MODEL_KEY(llama, LlamaConfig, family), .null_means = NullMeans::kNotGiven,
       .default_text = "llama",
       .meaning =
           "What a block computes: the model_type of one of the models in docs/llama.md; llama is "
           "Qwen's, too."},
      {DDP_MODEL_KEY(llama, LlamaConfig, n_expert), .range = kUpTo1e4,
       .null_means = NullMeans::kNotGiven, .default_text = "8 (mixtral), 128 (qwen3_moe)",
       .meaning = "Experts per block (mixture of experts), with family mixtral or qwen3_moe."},
      {DDP_MODEL_KEY(llama, LlamaConfig, n_expert_per_token), .range = kUpTo1e4,
       .null_means = NullMeans::kNotGiven, .default_text = "2 (mixtral), 8 (qwen3_moe)",
       .meaning = "Experts that each token goes through."},
      {DDP_MODEL_KEY(llama, LlamaConfig, norm_topk_prob),
       .meaning = "Scale the weights of a token's experts to sum to 1 (always with mixtral)."},
      {DDP_MODEL_KEY(llama, LlamaConfig, router_aux_loss_coef), .range = kAtLeast0,
       .null_means = NullMeans::kOff,
       .meaning = "Factor of the load-balancing loss of all routers, which the training loss "
                  "includes; 0: none. The default is a pretrained model's or preset's own."},
      {DDP_MODEL_KEY(llama, LlamaConfig, partial_rotary_factor), .range = kShare,
       .meaning = "Share of each head, from its start, that turns with its position (Phi-3)."},
      {DDP_MODEL_KEY(llama, LlamaConfig, sliding_window), .range = kStepCountOr0, .unit = "tokens",
       .null_means = NullMeans::kOff,
       .meaning = "How many tokens each token sees, itself included; 0: all."},
      {DDP_MODEL_KEY(llama, LlamaConfig, full_attention_every), .range = kStepCountOr0,
       .unit = "layers", .null_means = NullMeans::kOff,
       .meaning = "Every such layer sees all tokens in spite of sliding_window (Gemma); 0: none."},
      {DDP_MODEL_KEY(llama, LlamaConfig, rope_local_base_freq), .range = kAtLeast0,
       .null_means = NullMeans::kOff,
       .meaning =
           "rope_theta, without scaling, of layers with a window (Gemma 3); 0: that of all."},
      {DDP_MODEL_KEY(llama, LlamaConfig, query_pre_attn_scalar), .range = kAtLeast0,
       .null_means = NullMeans::kOff,
       .meaning = "Attention's scores are divided by its square root (Gemma); 0: by head_dim's."},
      {DDP_MODEL_KEY(llama, LlamaConfig, attn_logit_softcapping), .range = kAtLeast0,
       .null_means = NullMeans::kOff,
       .meaning = "c of c tanh(score / c) in attention (Gemma 2); 0: none."},
      {DDP_MODEL_KEY(llama, LlamaConfig, final_logit_softcapping), .range = kAtLeast0,
       .null_means = NullMeans::kOff, .meaning = "The same of logits (Gemma 2); 0: none."},
  };
}

std::vector<Field> llama_training_fields() {
  return {
      {DDP_MODEL_KEY(llama, LlamaConfig, init_from), .null_means = NullMeans::kNotGiven,
       .meaning =
           "Pretrained model to start from: the folder of one of the models in docs/llama.md "
           "(config.json, safetensors, as saved by transformers) or a snapshot; the keys "
           "above default to its own."},
      {DDP_MODEL_KEY(llama, LlamaConfig, activation_checkpointing), .null_means = NullMeans::kOff,
       .meaning = "As gpt_config.activation_checkpointing."},
      {DDP_MODEL_KEY(llama, LlamaConfig, loss_chunk_size), .range = kStepCountOr0, .whole = true,
       .unit = "tokens", .null_means = NullMeans::kOff,
       .meaning = "As gpt_config.loss_chunk_size."},
      {DDP_MODEL_KEY(llama, LlamaConfig, pad_vocab_to_multiple_of), .range = kStepCountOr0,
       .whole = true, .unit = "tokens", .null_means = NullMeans::kOff,
       .meaning = "As gpt_config.pad_vocab_to_multiple_of."},
  };
}

}  // namespace

void add_llama_keys() {
  ModelSections::add<LlamaConfig>();
  for (std::vector<Field> fields :
       {llama_size_fields(), llama_shape_fields(), llama_training_fields()}) {
    for (Field& field : fields) field.model = "llama";
    add_config_fields(fields);
  }
}

}  // namespace ddp::train
