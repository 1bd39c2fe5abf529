target_sources(ddp_model_costs PRIVATE model/llama/llama_architecture.cc model/llama/llama_config.cc model/llama/llama_cost.cc
  model/llama/llama_keys.cc model/llama/llama_presets.cc model/llama/llama_pretrained.cc model/llama/llama_rope.cc
  model/llama/llama_types.cc)
if(TARGET ddp_model)
  target_sources(ddp_model PRIVATE model/llama/llama.cc)
endif()
