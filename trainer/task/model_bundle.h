// A trained model together with what its users need: task, configuration, tokenizer, labels.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/optim/optimizer.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

struct ModelBundle {
  std::string path;             ///< Where it was opened.
  std::optional<int64_t> step;  ///< The run's step, if it was a snapshot.
  Config config;                ///< Configuration of the run that trained it, with its task.
  std::map<std::string, std::string> metadata;  ///< Task::metadata() of that run.
  std::unique_ptr<Tokenizer> tokenizer;         ///< Null for a model of images.
  std::vector<std::string> labels;              ///< A classifier's labels; else empty.
  std::shared_ptr<torch::nn::Module> model;     ///< In eval mode after opening.
  /// The contents of a snapshot of the model: every distinct parameter once, in order; with
  /// adapters, only theirs.
  std::vector<NamedTensor> weights;
  std::vector<NamedTensor> buffers;  ///< Task::buffers()

  /// The network that a run with `config` and `metadata` trains; its weights are undefined, but for
  /// those below adapters. Throws RunError: the metadata are damaged or of another task; UserError:
  /// the model below the adapters is missing or another one.
  static ModelBundle untrained(Config config, std::map<std::string, std::string> metadata);

  /// Returns the model, which must be an `M`, according to the task.
  template <class M>
  M& as() const {
    return dynamic_cast<M&>(*model);
  }
};

}  // namespace ddp::train
