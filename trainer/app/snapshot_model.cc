#include "trainer/app/snapshot_model.h"

#include <fmt/format.h>

#include "trainer/config/keys/config_text.h"
#include "trainer/snapshot/remote_snapshots.h"
#include "trainer/snapshot/snapshot.h"
#include "trainer/task/bert_task.h"
#include "trainer/task/causal_lm.h"
#include "trainer/task/class_labels.h"

namespace ddp::train {
namespace {

/// In eval mode on `device`.
void take_weights(const OpenedSnapshot& snapshot, torch::nn::Module& model,
                  const std::vector<NamedTensor>& weights, torch::Device device) {
  for (const auto& [name, tensor] : weights)
    snapshot.load_into(evaluated_tensor(*snapshot.file, name), tensor);
  model.eval();
  model.to(device);
}

}  // namespace

std::vector<NamedTensor> SnapshotModel::weights() const {
  return named_tensors(model->model_parameters());
}

SnapshotModel load_snapshot_model(const std::string& path, const std::string& mode,
                                  torch::Device device) {
  const FetchedSnapshot fetched(path);
  return load_snapshot_model(open_snapshot(fetched.file()), mode, device);
}

SnapshotModel load_snapshot_model(const OpenedSnapshot& snapshot, const std::string& mode,
                                  torch::Device device) {
  check_snapshot_task(snapshot.meta, TaskKind::kCausalLm, snapshot.path,
                      fmt::format("trainer {} is for {}", mode, task_name(TaskKind::kCausalLm)));
  SnapshotModel result;
  result.config = config_from_json(snapshot.meta.config_json);
  result.tokenizer = tokenizer_of(snapshot.meta.task);
  result.model =
      GPT(result.config.gpt, result.tokenizer->size(), result.config.data.block_size, std::nullopt);
  take_weights(snapshot, *result.model, result.weights(), device);
  return result;
}

std::vector<NamedTensor> MaskedSnapshotModel::weights() const {
  return named_tensors(model->model_parameters());
}

MaskedSnapshotModel load_masked_model(const OpenedSnapshot& snapshot, torch::Device device) {
  MaskedSnapshotModel result;
  result.config = config_from_json(snapshot.meta.config_json);
  result.tokenizer = tokenizer_of_bert(snapshot.meta.task);
  result.model = BertForMaskedLm(result.config.bert, result.tokenizer->size(),
                                 result.config.data.block_size, 0);
  take_weights(snapshot, *result.model, result.weights(), device);
  return result;
}

std::vector<NamedTensor> ClassifierSnapshotModel::weights() const {
  return named_tensors(model->model_parameters());
}

ClassifierSnapshotModel load_classifier_model(const OpenedSnapshot& snapshot,
                                              torch::Device device) {
  ClassifierSnapshotModel result;
  result.config = config_from_json(snapshot.meta.config_json);
  result.tokenizer = tokenizer_of_bert(snapshot.meta.task);
  result.labels = labels_of(snapshot.meta.task);
  result.model = BertForSequenceClassification(result.config.bert, result.tokenizer->size(),
                                               result.config.data.block_size,
                                               static_cast<int64_t>(result.labels.size()), 0);
  take_weights(snapshot, *result.model, result.weights(), device);
  return result;
}

}  // namespace ddp::train
