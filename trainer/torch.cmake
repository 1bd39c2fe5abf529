# The half of trainer that sees LibTorch.
# One precompiled torch/torch.h for all: 27 s once, then 4 s instead of 13 s per file.
option(DDP_PCH "Precompile torch/torch.h" ON)
if(DDP_PCH)
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/torch_header.cc CONTENT "")  # leaves an equal file alone
  add_library(ddp_torch_header OBJECT ${CMAKE_CURRENT_BINARY_DIR}/torch_header.cc)
  target_link_libraries(ddp_torch_header PUBLIC ddp_project_options ddp::torch)
  target_precompile_headers(ddp_torch_header PRIVATE <torch/torch.h>)
  target_compile_options(ddp_torch_header PRIVATE $<$<CONFIG:Release>:-O1>)
endif()
# With -O1: what it compiles runs once a step or once a run, -O3 would cost a third more of its build and gain nothing. All use
# one level, as GCC 13 and newer ignore a header that was precompiled with another one.
function(ddp_precompiled target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(DDP_PCH)
    target_precompile_headers(${target} REUSE_FROM ddp_torch_header)
  endif()
endfunction()

# A room that sees LibTorch.
function(ddp_torch_room name)
  ddp_room(${name} WITHOUT_FMT ${ARGN})  # torch brings its own
  ddp_precompiled(${name})
  set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 12)
endfunction()

ddp_torch_room(ddp_data
  PUBLIC ddp::torch ddp_text_files ddp_image_files
  PRIVATE nlohmann_json::nlohmann_json Threads::Threads
  SOURCES
    data/batch.cc
    data/chat/chat_samples.cc
    data/chat/preference_samples.cc
    data/data_loader.cc
    data/distributed_sampler.cc
    data/images/image_samples.cc
    data/text/bert_batch.cc
    data/text/masked_lines.cc
    data/text/text_dataset.cc
    data/text/text_mixture.cc
    data/text/text_samples.cc
    data/tokens/token_windows.cc
    data/weighted_order.cc)

ddp_torch_room(ddp_model
  PUBLIC ddp::torch ddp_model_costs
  PRIVATE ddp_cpu_kernels
  SOURCES
    model/blocks/activation_checkpoint.cc
    model/blocks/adaptable_embedding.cc
    model/blocks/adaptable_linear.cc
    model/blocks/fused_adapter.cc
    model/blocks/attention.cc
    model/blocks/batch_norm.cc
    model/blocks/causal_attention.cc
    model/bert/bert.cc
    model/bert/bert_classifier.cc
    model/causal_model.cc
    model/blocks/chunked_loss.cc
    model/blocks/experts.cc
    model/decoder_model.cc
    model/ops/block_ops.cc
    model/ops/fused_ops.cc
    model/ops/gpu_kernels.cc
    model/ops/gpu_ops.cc
    model/image_network.cc
    model/blocks/key_value_cache.cc
    model/blocks/layer_seeds.cc
    model/ops/llama_ops.cc
    model/ops/quantized_weight.cc
    model/blocks/parallel_layers.cc
    model/blocks/token_context.cc
    model/make_causal_model.cc
    model/sampling.cc
    model/blocks/tensor_parallel.cc
    model/ops/weight_codec.cc
    model/ops/weight_copies.cc)

# Rounds as torch's operators do, one operation at a time.
set_source_files_properties(optim/adam_blocks.cc model/ops/weight_codec.cc PROPERTIES
  COMPILE_OPTIONS "-ffp-contract=off;$<$<CONFIG:Release>:-O3>" SKIP_PRECOMPILE_HEADERS ON)

# Found by their place, so that a new optimizer is not listed here as well.
file(GLOB optim_sources RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS optim/*.cc)
ddp_torch_room(ddp_optim
  PUBLIC ddp::torch ddp_config ddp_layout
  PRIVATE ddp_cpu_kernels
  SOURCES ${optim_sources})

ddp_torch_room(ddp_parallel
  PUBLIC ddp::torch ddp_shared_memory
  PRIVATE nlohmann_json::nlohmann_json ${CMAKE_DL_LIBS} Threads::Threads
  SOURCES
    parallel/device/collective_wait.cc
    parallel/collectives/announcement.cc
    parallel/collectives/collectives.cc
    parallel/device/cuda_loader.cc
    parallel/strategy/ddp.cc
    parallel/device/device_plan.cc
    parallel/device/device_share.cc
    parallel/device/device_wait.cc
    parallel/environment/dist_env.cc
    parallel/collectives/gloo_backend.cc
    parallel/strategy/gradient_norm.cc
    parallel/environment/network.cc
    parallel/mesh/mesh.cc
    parallel/device/page_lock.cc
    parallel/strategy/pipeline_executor.cc
    parallel/mesh/peer_watch.cc
    parallel/collectives/process_group.cc
    parallel/collectives/row_collectives.cc
    parallel/strategy/fully_sharded.cc
    parallel/strategy/sharded_data_parallel.cc
    parallel/environment/scheduler_env.cc
    parallel/collectives/shared_memory_backend.cc
    parallel/collectives/sign_of_life.cc
    parallel/strategy/zero.cc
    parallel/device/device_progress.cc
    parallel/mesh/nccl_watch.cc)
target_include_directories(ddp_parallel SYSTEM PRIVATE ${DDP_GLOO_INCLUDE})

ddp_torch_room(ddp_interop
  PUBLIC ddp_text_files ddp_optim ddp_model ddp_tensorfile ddp_tokenizer
  PRIVATE nlohmann_json::nlohmann_json
  SOURCES
    interop/base_settings.cc
    interop/carried_files.cc
    interop/bitsandbytes_files.cc
    interop/export_model.cc
    interop/gguf_files.cc
    interop/gguf_names.cc
    interop/gguf_tokenizer.cc
    interop/peft_files.cc
    interop/pretrained_weights.cc
    interop/tokenizer_files.cc
    interop/weight_files.cc)

ddp_torch_room(ddp_task
  PUBLIC ddp_data ddp_model ddp_parallel ddp_interop ddp_metrics
  PRIVATE nlohmann_json::nlohmann_json
  SOURCES
    task/adapted_model.cc
    task/bert_task.cc
    task/causal_cost.cc
    task/causal_lm.cc
    task/chat_data.cc
    task/class_labels.cc
    task/evaluator.cc
    task/image_classification.cc
    task/label_kind.cc
    task/masked_lm.cc
    task/model_bundle.cc
    task/preference.cc
    task/preference_data.cc
    task/tasks.cc
    task/tensor_ranks.cc
    task/text_classification.cc
    task/text_classification_data.cc
    task/text_data.cc
    task/generate/choice_scores.cc
    task/generate/decoder.cc
    task/generate/generate.cc
    task/generate/text_sample.cc
    task/predict/image_predictor.cc
    task/predict/masked_predictor.cc
    task/predict/predictor.cc
    task/predict/text_predictor.cc)

ddp_torch_room(ddp_snapshot
  PUBLIC ddp_task ddp_storage ddp_tensorfile ddp_health
  PRIVATE nlohmann_json::nlohmann_json Threads::Threads
  SOURCES
    snapshot/open_model.cc
    snapshot/ram_snapshots.cc
    snapshot/remote_snapshots.cc
    snapshot/resume_check.cc
    snapshot/saved_tensors.cc
    snapshot/shard_file.cc
    snapshot/snapshot.cc
    snapshot/snapshot_folder.cc
    snapshot/snapshot_folder_publish.cc
    snapshot/snapshot_folder_shards.cc
    snapshot/snapshot_keeper.cc
    snapshot/snapshot_keeper_shards.cc
    snapshot/snapshot_manifest.cc
    snapshot/snapshot_meta.cc
    snapshot/state_buffer.cc
    snapshot/state_piece.cc)

ddp_torch_room(ddp_run
  PUBLIC ddp_snapshot
  PRIVATE nlohmann_json::nlohmann_json Threads::Threads
  SOURCES
    run/batch_plan.cc
    run/early_stopping.cc
    run/offloaded_optimizer.cc
    run/state/replica_check.cc
    run/state/distributed_state.cc
    run/state/row_moves.cc
    run/state/shared_snapshot.cc
    run/run_account.cc
    run/run_end.cc
    run/step_guard.cc
    run/step_profile.cc
    run/strategy/divided_model.cc
    run/strategy/loss_weights.cc
    run/strategy/micro_batch_graphs.cc
    run/strategy/model_norm.cc
    run/strategy/parallel_strategy.cc
    run/strategy/pipeline_strategy.cc
    run/trainer.cc
    run/state/trainer_state.cc
    run/training_run.cc
    run/training_run_bad_steps.cc
    run/training_run_duties.cc
    run/training_run_log.cc
    run/training_run_shards.cc)

# What `trainer` does, all but main(): another program may bring a model of its own.
ddp_torch_room(ddp_trainer_app
  PUBLIC ddp_run ddp_report ddp_trainer_plan ddp_trainer_tokenize
  PRIVATE nlohmann_json::nlohmann_json OpenSSL::Crypto
  SOURCES
    app/chosen_device.cc
    app/plan/costed_training.cc
    app/doctor.cc
    app/exit_report.cc
    app/generation.cc
    app/plan/memory_estimate.cc
    app/modes/chat.cc
    app/modes/data_show.cc
    app/modes/estimate.cc
    app/modes/eval.cc
    app/modes/eval_suite.cc
    app/modes/export.cc
    app/modes/generate.cc
    app/modes/inspect.cc
    app/modes/multirun.cc
    app/modes/plan.cc
    app/modes/predict.cc
    app/modes/run_mode.cc
    app/modes/train.cc
    app/out_of_memory.cc
    app/standard_output.cc
    app/resume_point.cc
    app/plan/strategy_choice.cc
    app/train_job.cc)
target_compile_definitions(ddp_trainer_app PRIVATE DDP_VERSION="${PROJECT_VERSION}")

add_executable(trainer main.cc)
target_link_libraries(trainer PRIVATE ddp_trainer_app)
ddp_precompiled(trainer)
# Symbols for the CUDA module, but none of libraries that another library may have its own copy of.
set_target_properties(trainer PROPERTIES ENABLE_EXPORTS ON)
if(DDP_STATIC_LIBS)
  target_link_options(trainer PRIVATE LINKER:--exclude-libs,libcrypto.a:libyaml-cpp.a:libutf8proc.a:libpng.a:libpng16.a:libturbojpeg.a:libz.a)
endif()
ddp_install_with_torch(trainer)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs DESTINATION ${DDP_SHARE_DIR}/ddp_run COMPONENT trainer)
install(PROGRAMS ${PROJECT_SOURCE_DIR}/scripts/track_run.py DESTINATION ${DDP_SHARE_DIR}/ddp_run COMPONENT trainer)
install(FILES ${PROJECT_SOURCE_DIR}/data/sample_corpus.txt DESTINATION ${DDP_SHARE_DIR}/ddp_run/data COMPONENT trainer)

if(TARGET ddp::torch_cuda)
  # Loaded at run time, and only when a GPU is used.
  add_library(trainer_cuda MODULE parallel/device/cuda_module.cc)
  target_link_libraries(trainer_cuda PRIVATE ddp_project_options ddp::torch_cuda ${CMAKE_DL_LIBS})
  ddp_install_with_torch(trainer_cuda)
  add_library(trainer_kernels MODULE model/ops/cuda/kernel_module.cc model/ops/cuda/operators.cc
    model/ops/cuda/coded_operators.cc model/ops/cuda/llama_operators.cc)
  ddp_embed_text(trainer_kernels model/ops/cuda/kernels.cu ddp::train::kKernelSource)
  ddp_embed_text(trainer_kernels model/ops/cuda/coded.cu ddp::train::kCodedSource)
  ddp_embed_text(trainer_kernels model/ops/cuda/llama.cu ddp::train::kLlamaSource)
  target_link_libraries(trainer_kernels PRIVATE ddp_project_options ddp::torch_cuda ${CMAKE_DL_LIBS})
  ddp_install_with_torch(trainer_kernels)
endif()
# Who builds trainer alone wants its modules as well: without them it refuses GPUs.
foreach(_module IN ITEMS trainer_cuda trainer_kernels trainer_arrow)
  if(TARGET ${_module})
    add_dependencies(trainer ${_module})
  endif()
endforeach()

set_source_files_properties(parallel/strategy/gradient_norm.cc PROPERTIES
  COMPILE_OPTIONS $<$<CONFIG:Release>:-O3> SKIP_PRECOMPILE_HEADERS ON)
