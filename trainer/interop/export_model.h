// Exports a trained model to files of other programs.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/interop/base_settings.h"
#include "trainer/interop/export_format.h"
#include "trainer/interop/tokenizer_files.h"
#include "trainer/optim/optimizer.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

struct ExportedModel {
  Config config;  ///< The run's: its task and model determine the format.
  int64_t vocab_size = 0;
  std::vector<NamedTensor> weights;           ///< float32; every distinct parameter once.
  std::vector<std::string> labels{};          ///< A classifier's labels; empty: not a classifier.
  std::optional<ChatFacts> chat{};            ///< For a causal model with a chat template.
  std::optional<BaseSettings> base{};         ///< The pretrained model that the run started from.
  torch::ScalarType dtype = torch::kFloat32;  ///< Type of the weights in the files.
  bool to_nf4 = false;   ///< Whether linear layers are quantized for bitsandbytes.
  bool to_q8_0 = false;  ///< Whether matrices are quantized for llama.cpp.
};

/// Creates `folder` if it is missing and replaces those files in it. Returns the names of the
/// files written. Throws RunError; UserError if transformers has no such model.
std::vector<std::string> export_model(const ExportedModel& model, const Tokenizer& tokenizer,
                                      ExportFormat format, const std::string& folder);

}  // namespace ddp::train
