#pragma once

namespace ddp::train {

/// huggingface: the folder of the transformers class that reads the model's architecture, with
/// config.json, generation_config.json, model.safetensors and the tokenizer. torch: model.pt, a
/// state dict that torch.load(weights_only=True) reads. safetensors: model.safetensors. The last
/// two have the model's own names and [out, in] layout; a tied head has no tensor of its own. peft,
/// of adapters: adapter_config.json and adapter_model.safetensors, for PeftModel. gguf: model.gguf,
/// for llama.cpp.
enum class ExportFormat { kHuggingFace, kTorch, kSafetensors, kPeft, kGguf };

/// Type of exported weights. q8_0, of gguf: 8 bits, with a scale for each 32 of a row.
enum class ExportDtype { kFloat32, kBFloat16, kFloat16, kQ8_0 };

}  // namespace ddp::train
