#include "trainer/snapshot/snapshot_meta.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/files/json_number.h"
#include "trainer/snapshot/shard_file.h"

namespace ddp::train {
namespace {

using Json = nlohmann::json;

/// Reads values of a metadata map; what is wrong names file and key.
class Reader {
 public:
  Reader(const Metadata& metadata, const std::string& where) : metadata_(metadata), where_(where) {}

  const std::string& text(const char* key) const {
    const auto found = metadata_.find(key);
    if (found != metadata_.end()) return found->second;
    throw RunError(fmt::format("{}: no '{}' in its metadata: not a trainer snapshot", where_, key));
  }

  int64_t integer(const char* key) const {
    const std::string& digits = text(key);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size() || value < 0) {
      throw RunError(
          fmt::format("{}: {} is '{}', not a number: damaged snapshot", where_, key, digits));
    }
    return value;
  }

  Json json(const char* key) const { return Json::parse(text(key)); }

 private:
  const Metadata& metadata_;
  const std::string& where_;
};

Json scaler_to_json(const GradScaler::State& state) {
  return {{"scale", json_number(state.scale)}, {"growth_tracker", state.growth_tracker}};
}

GradScaler::State scaler_from_json(const Json& json) {
  return {static_cast<float>(number_from_json(json.at("scale"))),
          json.at("growth_tracker").get<int32_t>()};
}

Json record_to_json(const std::optional<EvalRecord>& record) {
  if (!record) return nullptr;
  return {{"step", record->step},
          {"loss", json_number(record->loss)},
          {"score", json_number(record->score)},
          {"basis", record->basis}};
}

std::optional<EvalRecord> record_from_json(const Json& json) {
  if (json.is_null()) return std::nullopt;
  return EvalRecord{json.at("step").get<int64_t>(), number_from_json(json.at("loss")),
                    number_from_json(json.at("score")), json.at("basis").get<std::string>()};
}

void read_json_values(const Reader& read, SnapshotMeta& meta) {
  meta.optimizer_step = read.json("optimizer_step").get<double>();
  meta.grad_scaler = scaler_from_json(read.json("grad_scaler"));
  meta.step_guard = read.text("step_guard");
  meta.run_id = read.text("run_id");
  const Json evaluation = read.json("evaluation");
  meta.last_eval = record_from_json(evaluation.at("last"));
  meta.best_eval = record_from_json(evaluation.at("best"));
  meta.evaluation_due = evaluation.at("due").get<bool>();
  meta.early_stopping = evaluation.at("early_stopping").get<std::string>();
}

/// What the engine writes; all else is the task's, but for the checksums of the file.
const std::set<std::string> kOwnKeys = {"format",      "format_version", "step",
                                        "epoch",       "position",       "optimizer_step",
                                        "grad_scaler", "config",         "data_sha256",
                                        "world_size",  "step_guard",     "micro_batches_per_step",
                                        "run_id",      "evaluation",     kDigestsKey,
                                        kChecksumKey,  kShardKey,        kShardsKey,
                                        kTensorsKey,   kDcpKey,          kDcpVersionKey};

}  // namespace

Metadata SnapshotMeta::to_metadata() const {
  const Json evaluation = {{"last", record_to_json(last_eval)},
                           {"best", record_to_json(best_eval)},
                           {"due", evaluation_due},
                           {"early_stopping", early_stopping}};
  Metadata metadata = task;
  metadata.insert({{"format", "pt"},
                   {kVersionKey, std::to_string(kSnapshotVersion)},
                   {"step", std::to_string(step)},
                   {"epoch", std::to_string(cursor.epoch)},
                   {"position", std::to_string(cursor.position)},
                   {"optimizer_step", fmt::format("{}", optimizer_step)},
                   {"grad_scaler", scaler_to_json(grad_scaler).dump()},
                   {"config", config_json},
                   {"data_sha256", data_sha256},
                   {"micro_batches_per_step", std::to_string(micro_batches_per_step)},
                   {"world_size", std::to_string(world_size)},
                   {"step_guard", step_guard},
                   {"run_id", run_id},
                   {"evaluation", evaluation.dump()}});
  return metadata;
}

SnapshotMeta SnapshotMeta::from_metadata(const Metadata& metadata, const std::string& where,
                                         const std::function<void()>& before_refusal) {
  const Reader read(metadata, where);
  const int64_t version = read.integer(kVersionKey);
  if (version > kShardedVersion) {
    before_refusal();
    throw UserError(fmt::format(
        "{}: written by a newer trainer (snapshot format {}, this one reads up to {}); use the "
        "newer trainer, or another trainer_config.snapshot_path to start from scratch",
        where, version, kShardedVersion));
  }
  SnapshotMeta meta;
  for (const auto& entry : metadata) {
    if (!kOwnKeys.contains(entry.first)) meta.task.insert(entry);
  }
  meta.step = read.integer("step");
  meta.cursor = {read.integer("epoch"), read.integer("position")};
  meta.micro_batches_per_step = read.integer("micro_batches_per_step");
  meta.world_size = read.integer("world_size");
  meta.data_sha256 = read.text("data_sha256");
  meta.config_json = read.text("config");
  try {
    read_json_values(read, meta);
  } catch (const Json::exception& error) {
    throw RunError(
        fmt::format("{}: damaged snapshot metadata: {}", where, plain_json_error(error.what())));
  }
  return meta;
}

bool is_better(const EvalRecord& record, const std::optional<EvalRecord>& best) {
  return !std::isnan(record.score) && (!best || !(best->score <= record.score));
}

std::string SnapshotMeta::to_json() const { return Json(to_metadata()).dump(); }

SnapshotMeta SnapshotMeta::from_json(const std::string& text) {
  return from_metadata(Json::parse(text).get<Metadata>(), "rank 0's snapshot");
}

std::string snapshot_task(const SnapshotMeta& meta) {
  const auto name = meta.task.find(kTaskKey);
  return name == meta.task.end() ? "" : name->second;
}

void check_snapshot_task(std::string_view trained, TaskKind task, const std::string& path,
                         const std::string& fix) {
  if (trained == task_name(task)) return;
  throw UserError(fmt::format("snapshot {} was trained with task {}, not {}; {}", path, trained,
                              task_name(task), fix));
}

}  // namespace ddp::train
