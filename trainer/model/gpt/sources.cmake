target_sources(ddp_model_costs PRIVATE model/gpt/gpt_architecture.cc model/gpt/gpt_cost.cc)
if(TARGET ddp_model)
  target_sources(ddp_model PRIVATE model/gpt/gpt.cc)
endif()
