// The model of a snapshot, ready to compute.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/model/bert.h"
#include "trainer/model/bert_classifier.h"
#include "trainer/model/gpt.h"
#include "trainer/optim/optimizer.h"
#include "trainer/snapshot/snapshot.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

struct SnapshotModel {
  Config config;  ///< Of the run that saved.
  std::unique_ptr<Tokenizer> tokenizer;
  GPT model{nullptr};  ///< In eval mode.

  std::vector<NamedTensor> weights() const;
};

/// Reads `path`, a file or an object in a store. `mode` is what needs a language model. Throws
/// UserError, RunError.
SnapshotModel load_snapshot_model(const std::string& path, const std::string& mode,
                                  torch::Device device);
SnapshotModel load_snapshot_model(const OpenedSnapshot& snapshot, const std::string& mode,
                                  torch::Device device);

/// The same of a masked language model.
struct MaskedSnapshotModel {
  Config config;
  std::unique_ptr<Tokenizer> tokenizer;
  BertForMaskedLm model{nullptr};

  std::vector<NamedTensor> weights() const;
};
MaskedSnapshotModel load_masked_model(const OpenedSnapshot& snapshot, torch::Device device);

/// And of a classifier of texts.
struct ClassifierSnapshotModel {
  Config config;
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<std::string> labels;
  BertForSequenceClassification model{nullptr};

  std::vector<NamedTensor> weights() const;
};
ClassifierSnapshotModel load_classifier_model(const OpenedSnapshot& snapshot, torch::Device device);

}  // namespace ddp::train
