#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "launcher/worker_contract.h"
#include "trainer/app/modes.h"
#include "trainer/app/standard_output.h"
#include "trainer/runtime/files/sha256.h"
#include "trainer/snapshot/remote_snapshots.h"
#include "trainer/snapshot/snapshot.h"
#include "trainer/task/causal_lm.h"

namespace ddp::train {
namespace {

using Json = nlohmann::ordered_json;

Json tensor_report(const SavedTensors& file) {
  Json tensors = Json::array();
  for (const auto& tensor : file.tensors()) {
    Sha256 sum;
    file.read(tensor, 0, bytes_of(tensor),
              [&sum](const std::byte* data, std::size_t size) { sum.update(data, size); });
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.dtype},
                       {"shape", tensor.shape},
                       {"sha256", sum.hex()}});
  }
  return tensors;
}

int64_t model_parameters(const SavedTensors& file) {
  int64_t count = 0;
  for (const auto& tensor : file.tensors()) {
    if (tensor.name.rfind("model.", 0) != 0) continue;
    int64_t elements = 1;
    for (const int64_t dim : tensor.shape) elements *= dim;
    count += elements;
  }
  return count;
}

/// Empty for a snapshot in one file.
Json shard_report(const SavedTensors& file) {
  Json shards = Json::array();
  for (const auto& shard : file.shards())
    shards.push_back({{"file", shard.file}, {"bytes", shard.bytes}, {"checksum", shard.checksum}});
  return shards;
}

Json snapshot_report(const OpenedSnapshot& snapshot) {
  const auto& meta = snapshot.meta;
  Json report = {
      {"path", snapshot.path},
      {"format_version", snapshot.file->shards().empty() ? kSnapshotVersion : kShardedVersion},
      {"task", snapshot_task(meta)},
      {"run_id", meta.run_id},
      {"step", meta.step},
      {"epoch", meta.cursor.epoch},
      {"position", meta.cursor.position},
      {"optimizer_step", meta.optimizer_step},
      {"parameters", model_parameters(*snapshot.file)},
      {"world_size", meta.world_size},
      {"micro_batches_per_step", meta.micro_batches_per_step},
      {"grad_scaler",
       {{"scale", meta.grad_scaler.scale}, {"growth_tracker", meta.grad_scaler.growth_tracker}}},
      {"data_sha256", meta.data_sha256},
      {"content_sha256", content_sha256(*snapshot.file)}};
  const std::string task = snapshot_task(meta);
  if (task == task_name(TaskKind::kCausalLm) || task == task_name(TaskKind::kPreference))
    report["vocabulary_size"] = tokenizer_of(meta.task)->size();
  report["shards"] = shard_report(*snapshot.file);
  report["config"] = Json::parse(meta.config_json);
  report["tensors"] = tensor_report(*snapshot.file);
  return report;
}

std::string as_table(const Json& report) {
  std::string text;
  for (const auto& [key, value] : report.items()) {
    if (key == "tensors" || key == "config" || key == "shards") continue;
    text += fmt::format("{:<22} {}\n", key,
                        value.is_string() ? value.get<std::string>() : value.dump());
  }
  for (const auto& shard : report["shards"]) {
    text += fmt::format("{:<22} {} ({} bytes)\n", "shard", shard["file"].get<std::string>(),
                        shard["bytes"].get<uint64_t>());
  }
  text += "config\n";
  for (const auto& [section, keys] : report["config"].items()) {
    if (!keys.is_object()) {
      text += fmt::format("  {} = {}\n", section, keys.dump());
      continue;
    }
    for (const auto& [key, value] : keys.items())
      text += fmt::format("  {}.{} = {}\n", section, key, value.dump());
  }
  text += "tensors (sha256, dtype, shape, name)\n";
  for (const auto& tensor : report["tensors"]) {
    text += fmt::format("  {} {:<4} {:<14} {}\n", tensor["sha256"].get<std::string>(),
                        tensor["dtype"].get<std::string>(), tensor["shape"].dump(),
                        tensor["name"].get<std::string>());
  }
  return text;
}

}  // namespace

int run_inspect(const TrainerArgs& args) {
  const FetchedSnapshot fetched(args.inspect_snapshot);
  const OpenedSnapshot snapshot = open_snapshot(fetched.file());
  const Json report = snapshot_report(snapshot);
  print(args.inspect_json ? report.dump(2) + "\n" : as_table(report));
  return launch::kExitDone;
}

}  // namespace ddp::train
