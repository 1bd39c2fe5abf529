#include "trainer/config/keys/trainer_keys.h"

#include <sstream>
#include <utility>

#include "trainer/config/keys/key_table.h"

namespace ddp::train {
namespace {

/// A key here, and the names of the same elsewhere.
constexpr std::pair<const char*, const char*> kNames[] = {
    {"trainer_config.device", "accelerator"},
    {"trainer_config.grad_accumulation_steps",
     "accumulate_grad_batches gradient_accumulation_steps"},
    {"optimizer_config.betas", "adam_beta1 adam_beta2 beta1 beta2 beta_1 beta_2"},
    {"optimizer_config.eps", "adam_epsilon epsilon"},
    {"lora.rank", "adapter finetuning_type lora_r"},
    {"lora.init_from", "lora_model_dir"},
    {"lora.use_rslora", "peft_use_rslora"},
    {"optimizer_config.param_groups (LoRA+: docs/lora.md)", "loraplus_lr_ratio"},
    {"quantize.base=nf4", "load_in_4bit"},
    {"quantize.base=int8", "load_in_8bit"},
    {"data_config.loss_on", "roles_to_train train_on_eos"},
    {"data_config.loss_on=assistant", "assistant_only_loss completion_only_loss"},
    {"trainer_config.batch_size (trainer estimate shows what fits)", "auto_find_batch_size"},
    {"init_from", "base_model model_name_or_path"},
    {"preference_config.beta", "beta dpo_beta orpo_alpha pref_beta rl_beta"},
    {"trainer_config.use_amp=true trainer_config.amp_dtype=bfloat16",
     "bf16 dtype mixed_precision precision torch_dtype"},
    {"trainer_config.snapshot_path (a run continues from the snapshot there)",
     "ckpt_path resume_from_checkpoint"},
    {"trainer_config.grad_norm_clip",
     "clipnorm global_clipnorm grad_clip gradient_clip_val max_grad_norm"},
    {"trainer_config.fused_gpu_kernels", "compile torch_compile"},
    {"data_config.block_size", "cutoff_len max_length max_seq_length sequence_len"},
    {"trainer_config.seed", "data_seed"},
    {"trainer_config.deterministic=true", "full_determinism"},
    {"trainer_config.freeze (what is not trained)", "unfrozen_parameters"},
    {"trainer_config.data_loader_workers", "dataloader_num_workers num_workers"},
    {"data_config.path", "dataset dataset_path datasets train_dataset train_file"},
    {"data_config.text_column", "dataset_text_field text_field"},
    {"distributed_config.backend", "ddp_backend"},
    {"distributed_config.bucket_cap_mb", "ddp_bucket_cap_mb"},
    {"distributed_config.timeout_s", "ddp_timeout"},
    {"distributed_config.tensor", "tensor_parallel_size"},
    {"distributed_config.expert", "expert_parallel_size"},
    {"optimizer_config.lr_schedule=cosine", "decay_lr"},
    {"distributed_config.strategy=zero1, zero2 or zero3", "deepspeed"},
    {"hydra.run.dir", "default_root_dir logging_dir out_dir output_dir"},
    {"hydra.run.dir (a run has the name of its folder)", "run_name"},
    {"trainer_config.batch_size",
     "device_batch_size micro_batch_size per_device_eval_batch_size "
     "per_device_train_batch_size per_gpu_train_batch_size train_batch_size"},
    {"ddp-run --nproc_per_node=N", "devices num_gpus"},
    {"logging_config.progress", "disable_tqdm enable_progress_bar"},
    {"gpt_config.resid_pdrop, embd_pdrop and attn_pdrop", "dropout"},
    {"trainer_config.early_stopping_min_delta", "early_stopping_threshold min_delta"},
    {"trainer_config.max_epochs", "epochs n_epochs num_epochs num_train_epochs"},
    {"data_config.eval_path", "eval_dataset test_datasets validation_file"},
    {"trainer_config.eval_every_steps",
     "eval_interval eval_steps eval_strategy evals_per_epoch evaluation_strategy "
     "val_check_interval"},
    {"trainer_config.use_amp=true trainer_config.amp_dtype=float16", "fp16"},
    {"distributed_config.strategy=zero3", "fsdp"},
    {"gpt_config.activation_checkpointing or llama_config.activation_checkpointing",
     "gradient_checkpointing"},
    {"trainer_config.metric_for_best_model (its direction is known)", "greater_is_better"},
    {"data_config.bucket_batches", "group_by_length"},
    {"gpt_config.n_embd", "hidden_size"},
    {"llama_config.intermediate", "intermediate_size moe_intermediate_size"},
    {"llama_config.n_expert", "num_experts num_local_experts"},
    {"llama_config.n_expert_per_token", "num_experts_per_tok"},
    {"trainer_config.label_smoothing", "label_smoothing_factor"},
    {"trainer_config.eval_iters", "limit_val_batches validation_steps"},
    {"trainer_config.log_every_steps", "log_every_n_steps log_interval logging_steps"},
    {"lora.alpha", "lora_alpha"},
    {"lora.dropout", "lora_dropout"},
    {"lora.targets", "lora_target lora_target_modules target_modules"},
    {"lora.targets=all-linear", "lora_target_linear"},
    {"preference_config.label_smoothing", "dpo_label_smoothing"},
    {"preference_config.loss_type", "loss_type pref_loss"},
    {"task=preference (its losses: preference_config.loss_type)", "rl"},
    {"optimizer_config.learning_rate", "lr max_lr"},
    {"optimizer_config.decay_steps", "lr_decay_iters"},
    {"optimizer_config.lr_schedule", "lr_scheduler lr_scheduler_type"},
    {"optimizer_config.min_lr (a learning rate)", "cosine_min_lr_ratio"},
    {"optimizer_config.min_lr, decay_steps and lr_power", "lr_scheduler_kwargs"},
    {"trainer_config.max_steps", "max_iters max_train_steps"},
    {"data_config.format=chat (conversations are packed)", "neat_packing packing sample_packing"},
    {"trainer_config.device=cpu", "no_cuda use_cpu"},
    {"gpt_config.n_head", "num_attention_heads"},
    {"gpt_config.n_layer", "num_hidden_layers"},
    {"llama_config.n_kv_head", "num_key_value_heads"},
    {"ddp-run --nnodes=N", "num_nodes"},
    {"prompt_tuning.tokens", "num_virtual_tokens"},
    {"optimizer_config.warmup_steps", "num_warmup_steps warmup_iters"},
    {"optimizer_config.name (AdamW in 8 bits: optimizer_config.state_bits=8)", "optim optimizer"},
    {"trainer_config.early_stopping_patience", "patience"},
    {"prompt_tuning.text", "prompt_tuning_init_text"},
    {"metrics_config.wandb=offline, metrics_config.mlflow=true or logging_config.tensorboard=true",
     "report_to"},
    {"metrics_config.wandb=offline or online (WANDB_PROJECT, ...: docs/metrics.md)",
     "use_wandb wandb wandb_entity wandb_log wandb_mode wandb_name wandb_project wandb_run_id "
     "wandb_run_name"},
    {"metrics_config.mlflow=true (MLFLOW_TRACKING_URI, ...: docs/metrics.md)",
     "mlflow mlflow_experiment_name mlflow_run_name mlflow_tracking_uri use_mlflow"},
    {"trainer_config.save_every_steps", "save_steps save_strategy saves_per_epoch"},
    {"trainer_config.max_steps (an epoch is a pass over the data)", "steps_per_epoch"},
    {"data_config.train_split (the share to train on)",
     "test_size val_set_size val_size validation_split"},
    {"trainer_config.tf32", "tf32_mode"},
    {"data_config.tokenizer (a folder with that template: docs/chat.md)", "chat_template"},
    {"data_config.add_tokens", "resize_vocab tokens"},
    {"data_config.tokenizer (a folder with them: docs/fine-tune.md)", "new_special_tokens"},
    {"trainer_config.global_batch_size", "total_batch_size"},
    {"data_config.loss_on=all", "train_on_inputs"},
};

}  // namespace

const std::map<std::string, std::string>& peer_names() {
  static const std::map<std::string, std::string> all = [] {
    std::map<std::string, std::string> names;
    for (const auto& [ours, theirs] : kNames) {
      std::istringstream words(theirs);
      for (std::string name; words >> name;) names.emplace(name, ours);
    }
    return names;
  }();
  return all;
}

const KnownKeys& trainer_keys() {
  static const KnownKeys keys = [] {
    std::vector<std::string> paths;
    for (const Field& field : config_fields()) paths.push_back(field.path);
    return KnownKeys(paths, peer_names());
  }();
  return keys;
}

}  // namespace ddp::train
