# The half of trainer that sees LibTorch.
find_package(OpenSSL REQUIRED COMPONENTS Crypto)

add_library(ddp_trainer STATIC
  data/data_loader.cc
  data/distributed_sampler.cc
  data/image_samples.cc
  data/length_buckets.cc
  data/masked_lines.cc
  data/stratified_split.cc
  data/text_dataset.cc
  data/text_samples.cc
  data/token_windows.cc
  parallel/collective_wait.cc
  parallel/collectives.cc
  parallel/cuda_loader.cc
  parallel/ddp.cc
  parallel/device_wait.cc
  parallel/device_plan.cc
  parallel/device_share.cc
  parallel/dist_env.cc
  parallel/scheduler_env.cc
  parallel/shared_memory_backend.cc
  parallel/sign_of_life.cc
  parallel/store_port.cc
  parallel/unsent_backend.cc
  parallel/gloo_backend.cc
  parallel/gradient_compression.cc
  parallel/gradient_norm.cc
  parallel/local_address.cc
  parallel/page_lock.cc
  parallel/peer_watch.cc
  parallel/process_group.cc
  run/batch_plan.cc
  run/early_stopping.cc
  task/bert_task.cc
  task/causal_lm.cc
  task/class_labels.cc
  task/evaluator.cc
  task/fill_masks.cc
  task/image_classification.cc
  task/image_predictor.cc
  task/make_task.cc
  task/make_predictor.cc
  task/masked_lm.cc
  task/masked_predictor.cc
  task/text_classification.cc
  task/text_predictor.cc
  task/text_sample.cc
  snapshot/ram_snapshots.cc
  snapshot/remote_snapshots.cc
  snapshot/resume_check.cc
  run/run_account.cc
  run/run_end.cc
  health/run_monitor.cc
  snapshot/snapshot.cc
  snapshot/snapshot_folder.cc
  snapshot/snapshot_folder_publish.cc
  snapshot/snapshot_manifest.cc
  snapshot/snapshot_keeper.cc
  snapshot/snapshot_meta.cc
  snapshot/state_buffer.cc
  run/replica_check.cc
  run/step_guard.cc
  run/step_profile.cc
  run/trainer.cc
  run/training_run.cc
  run/training_run_duties.cc
  run/training_run_log.cc
  interop/export_model.cc
  interop/pretrained_weights.cc
  interop/tokenizer_files.cc
  interop/torch_file.cc
  model/activation_checkpoint.cc
  model/batch_norm.cc
  model/bert.cc
  model/bert_classifier.cc
  model/chunked_loss.cc
  model/fused_ops.cc
  model/generate.cc
  model/gpt.cc
  model/image_network.cc
  model/key_value_cache.cc
  model/sampling.cc
  optim/frozen.cc
  optim/fused_optimizers.cc
  optim/muon.cc
  optim/numerics.cc
  optim/amp.cc
  optim/optimizer.cc
  optim/schedule.cc
  optim/weight_average.cc)
target_link_libraries(ddp_trainer
  PUBLIC ddp::torch ddp_trainer_config ddp_trainer_metrics ddp_snapshot_file ddp_tokenizer ddp_images
  PRIVATE ddp_cpu_kernels nlohmann_json::nlohmann_json OpenSSL::Crypto ${CMAKE_DL_LIBS} Threads::Threads)
target_include_directories(ddp_trainer SYSTEM PRIVATE ${DDP_GLOO_INCLUDE})
option(DDP_PCH "Precompile torch/torch.h (27 s once, then 4 s instead of 13 s per file)" ON)
if(DDP_PCH)
  target_precompile_headers(ddp_trainer PRIVATE <torch/torch.h>)
endif()

add_executable(trainer
  main.cc
  app/doctor.cc
  app/exit_report.cc
  app/machine_memory.cc
  app/memory_estimate.cc
  app/modes/estimate.cc
  app/modes/eval.cc
  app/modes/export.cc
  app/modes/generate.cc
  app/modes/inspect.cc
  app/modes/predict.cc
  app/modes/report.cc
  app/modes/show.cc
  app/modes/train.cc
  app/multirun.cc
  app/out_of_memory.cc
  app/prediction_file.cc
  app/snapshot_model.cc
  app/standard_output.cc
  app/train_job.cc
  app/warm_up.cc)
target_link_libraries(trainer PRIVATE ddp_trainer nlohmann_json::nlohmann_json OpenSSL::Crypto)
target_compile_definitions(trainer PRIVATE DDP_VERSION="${PROJECT_VERSION}")
if(DDP_PCH)
  target_precompile_headers(trainer REUSE_FROM ddp_trainer)
endif()
# Symbols for the CUDA module, but none of libraries that another library may have its own copy of.
set_target_properties(trainer PROPERTIES ENABLE_EXPORTS ON)
if(DDP_STATIC_LIBS)
  target_link_options(trainer PRIVATE LINKER:--exclude-libs,libcrypto.a:libyaml-cpp.a:libutf8proc.a:libpng.a:libpng16.a:libturbojpeg.a:libz.a)
endif()
ddp_install_with_torch(trainer)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/configs DESTINATION ${DDP_SHARE_DIR}/ddp_run COMPONENT trainer)
install(FILES ${CMAKE_SOURCE_DIR}/data/sample_corpus.txt DESTINATION ${DDP_SHARE_DIR}/ddp_run/data COMPONENT trainer)

if(TARGET ddp::torch_cuda)
  # Loaded at run time, and only when a GPU is used.
  add_library(trainer_cuda MODULE parallel/cuda_module.cc)
  target_link_libraries(trainer_cuda PRIVATE ddp_project_options ddp::torch_cuda ${CMAKE_DL_LIBS})
  ddp_install_with_torch(trainer_cuda)
endif()
