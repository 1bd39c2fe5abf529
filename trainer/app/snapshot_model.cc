#include "trainer/app/snapshot_model.h"

#include <fmt/format.h>

#include "trainer/config/keys/config_text.h"
#include "trainer/snapshot/remote_snapshots.h"
#include "trainer/snapshot/snapshot.h"
#include "trainer/task/causal_lm.h"
#include "trainer/task/masked_lm.h"

namespace ddp::train {

std::vector<NamedTensor> SnapshotModel::weights() const {
  std::vector<NamedTensor> result;
  for (const auto& parameter : model->model_parameters())
    result.push_back({parameter.name, parameter.tensor});
  return result;
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
  result.model = GPT(result.config.gpt, result.tokenizer->size(), result.config.data.block_size, 0);
  for (auto& p : result.model->model_parameters())
    snapshot.load_into(evaluated_tensor(*snapshot.file, p.name), p.tensor);
  result.model->eval();
  result.model->to(device);
  return result;
}

std::vector<NamedTensor> MaskedSnapshotModel::weights() const {
  std::vector<NamedTensor> result;
  for (const auto& parameter : model->model_parameters())
    result.push_back({parameter.name, parameter.tensor});
  return result;
}

MaskedSnapshotModel load_masked_model(const OpenedSnapshot& snapshot, torch::Device device) {
  MaskedSnapshotModel result;
  result.config = config_from_json(snapshot.meta.config_json);
  result.tokenizer = tokenizer_of_masked_lm(snapshot.meta.task);
  result.model = BertForMaskedLm(result.config.bert, result.tokenizer->size(),
                                 result.config.data.block_size, 0);
  for (auto& p : result.model->model_parameters())
    snapshot.load_into(evaluated_tensor(*snapshot.file, p.name), p.tensor);
  result.model->eval();
  result.model->to(device);
  return result;
}

}  // namespace ddp::train
