#include "trainer/engine/snapshot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "trainer/runtime/atomic_file.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/sha256.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const char* dtype_name(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return "F32";
    case torch::kFloat64:
      return "F64";
    case torch::kFloat16:
      return "F16";
    case torch::kBFloat16:
      return "BF16";
    case torch::kInt64:
      return "I64";
    case torch::kInt32:
      return "I32";
    case torch::kUInt8:
      return "U8";
    default:
      throw std::logic_error("snapshot: no name for this dtype");
  }
}

int64_t integer(const std::string& path, const char* key, const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) {
    throw RunError(fmt::format("{}: {} is '{}', not a number: damaged snapshot", path, key, text));
  }
  return value;
}

Json scaler_to_json(const GradScaler::State& state) {
  return {{"scale", state.scale}, {"growth_tracker", state.growth_tracker}};
}

GradScaler::State scaler_from_json(const Json& json) {
  return {json.at("scale").get<float>(), json.at("growth_tracker").get<int32_t>()};
}

// The settings that change what the next step computes. Sizes of the model are in its tensors'
// shapes.
Json arithmetic_settings(const std::string& config_json) {
  const Json config = Json::parse(config_json);
  Json kept;
  const auto keep = [&](const char* section, std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      if (config.contains(section) && config[section].contains(key))
        kept[section][key] = config[section][key];
    }
  };
  keep("data_config", {"block_size", "train_split", "stride"});
  keep("gpt_config", {"n_layer", "n_head", "n_embd", "embd_pdrop", "resid_pdrop", "attn_pdrop",
                      "activation", "tie_weights"});
  keep("trainer_config", {"batch_size", "grad_norm_clip", "seed", "use_amp", "amp_dtype"});
  keep("optimizer_config", {"learning_rate", "weight_decay", "betas", "eps"});
  return kept;
}

bool has_stale_temporary(const std::string& path) {
  std::error_code ignored;
  const std::string prefix = fs::path(path).filename().string() + ".tmp.";
  for (const auto& entry : fs::directory_iterator(fs::path(path).parent_path(), ignored)) {
    if (entry.path().filename().string().rfind(prefix, 0) == 0) return true;
  }
  return false;
}

}  // namespace

Metadata SnapshotMeta::to_metadata() const {
  return {{"format", "pt"},
          {"format_version", std::to_string(kSnapshotVersion)},
          {"step", std::to_string(step)},
          {"epoch", std::to_string(cursor.epoch)},
          {"position", std::to_string(cursor.position)},
          {"optimizer_step", fmt::format("{}", optimizer_step)},
          {"grad_scaler", scaler_to_json(grad_scaler).dump()},
          {"vocabulary", Json(vocabulary).dump()},
          {"config", config_json},
          {"data_sha256", data_sha256},
          {"micro_batches_per_step", std::to_string(micro_batches_per_step)},
          {"world_size", std::to_string(world_size)}};
}

SnapshotMeta SnapshotMeta::from_file(const SafetensorsFile& file, const std::string& path) {
  const auto number = [&](const char* key) {
    return integer(path, key, file.require_metadata(key));
  };
  const int64_t version = number("format_version");
  if (version > kSnapshotVersion) {
    file.verify_checksum();  // a flipped bit in the number is damage, not the future
    throw UserError(fmt::format(
        "{}: written by a newer trainer (snapshot format {}, this one reads up to {}); use that "
        "trainer, or another trainer_config.snapshot_path to start afresh",
        path, version, kSnapshotVersion));
  }
  SnapshotMeta meta;
  meta.step = number("step");
  meta.cursor = {number("epoch"), number("position")};
  meta.micro_batches_per_step = number("micro_batches_per_step");
  meta.world_size = number("world_size");
  meta.data_sha256 = file.require_metadata("data_sha256");
  meta.config_json = file.require_metadata("config");
  try {
    meta.optimizer_step = Json::parse(file.require_metadata("optimizer_step")).get<double>();
    meta.grad_scaler = scaler_from_json(Json::parse(file.require_metadata("grad_scaler")));
    meta.vocabulary =
        Json::parse(file.require_metadata("vocabulary")).get<std::vector<std::string>>();
  } catch (const Json::exception& error) {
    throw RunError(fmt::format("{}: damaged snapshot metadata: {}", path, error.what()));
  }
  return meta;
}

std::string SnapshotMeta::to_json() const { return Json(to_metadata()).dump(); }

SnapshotMeta SnapshotMeta::from_json(const std::string& text) {
  const Json json = Json::parse(text);
  const auto number = [&](const char* key) {
    return integer("rank 0's snapshot", key, json.at(key));
  };
  SnapshotMeta meta;
  meta.step = number("step");
  meta.cursor = {number("epoch"), number("position")};
  meta.micro_batches_per_step = number("micro_batches_per_step");
  meta.world_size = number("world_size");
  meta.data_sha256 = json.at("data_sha256");
  meta.config_json = json.at("config");
  meta.optimizer_step = Json::parse(json.at("optimizer_step").get<std::string>()).get<double>();
  meta.grad_scaler = scaler_from_json(Json::parse(json.at("grad_scaler").get<std::string>()));
  meta.vocabulary =
      Json::parse(json.at("vocabulary").get<std::string>()).get<std::vector<std::string>>();
  return meta;
}

std::string previous_snapshot_path(const std::string& path) { return path + ".prev"; }

void prepare_snapshot_folder(const std::string& path) {
  try {
    const fs::path folder = fs::path(path).parent_path();
    if (!folder.empty()) fs::create_directories(folder);
    for (const auto& name : {path, previous_snapshot_path(path)}) {
      if (fs::is_directory(name)) throw RunError(name + ": is a folder");
    }
    const AtomicFile probe(path);
  } catch (const std::exception& error) {
    throw UserError(fmt::format(
        "trainer_config.snapshot_path: snapshots cannot be written: {}; choose another path or "
        "change its permissions",
        error.what()));
  }
}

void save_snapshot(const std::string& path, const SnapshotMeta& meta, const NamedTensors& tensors,
                   bool keep_previous) {
  NamedTensors on_cpu;
  std::vector<TensorBytes> bytes;
  on_cpu.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const auto& copy =
        on_cpu.emplace_back(name, tensor.detach().to(torch::kCPU).contiguous()).second;
    bytes.push_back({name, dtype_name(copy.scalar_type()), copy.sizes().vec(),
                     static_cast<const std::byte*>(copy.const_data_ptr()), copy.nbytes()});
  }
  publish_safetensors(path, keep_previous ? previous_snapshot_path(path) : "", meta.to_metadata(),
                      bytes);
}

void OpenedSnapshot::load_into(const std::string& name, const torch::Tensor& target) const {
  const TensorBytes* stored = file->find(name);
  if (stored == nullptr) {
    throw UserError(fmt::format(
        "{}: has no tensor {}: a snapshot of another model; set trainer_config.snapshot_path to "
        "a new file to start afresh",
        path, name));
  }
  if (stored->shape != target.sizes().vec() || stored->dtype != dtype_name(target.scalar_type())) {
    throw UserError(fmt::format(
        "{}: tensor {} is {} [{}], this model needs {} [{}]; set trainer_config.snapshot_path to "
        "a new file to start afresh",
        path, name, stored->dtype, fmt::join(stored->shape, ", "), dtype_name(target.scalar_type()),
        fmt::join(target.sizes().vec(), ", ")));
  }
  const torch::NoGradGuard no_grad;
  if (target.is_cpu() && target.is_contiguous()) {
    std::memcpy(target.mutable_data_ptr(), stored->data, stored->size);
    return;
  }
  auto staged = torch::empty(target.sizes(), target.options().device(torch::kCPU));
  std::memcpy(staged.mutable_data_ptr(), stored->data, stored->size);
  target.copy_(staged);
}

OpenedSnapshot open_snapshot(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    throw UserError(
        fmt::format("{}: no such snapshot; trainer_config.snapshot_path of a run names it", path));
  }
  OpenedSnapshot opened{path, std::make_unique<SafetensorsFile>(path), {}};
  opened.meta = SnapshotMeta::from_file(*opened.file, path);
  opened.file->verify_checksum();
  return opened;
}

std::optional<OpenedSnapshot> find_snapshot(const std::string& path, Log& log) {
  const std::string previous = previous_snapshot_path(path);
  std::error_code ignored;
  const bool newest_there = fs::exists(path, ignored);
  const bool previous_there = fs::exists(previous, ignored);
  if (!newest_there && !(previous_there && has_stale_temporary(path))) {
    if (previous_there)
      log.warning(
          fmt::format("{} is gone, {} is not used; rename it to go on from it", path, previous));
    return std::nullopt;
  }
  try {
    return open_snapshot(newest_there ? path : previous);
  } catch (const RunError& error) {
    if (!newest_there || !previous_there) {
      throw RunError(fmt::format("{}; there is no older one; move it away to train from scratch",
                                 error.what()));
    }
    log.warning(fmt::format("snapshot is damaged: {}", error.what()));
    log.warning(fmt::format("falling back to the snapshot before it: {}", previous));
  }
  try {
    return open_snapshot(previous);
  } catch (const RunError& error) {
    throw RunError(fmt::format(
        "{}; no good snapshot is left; move both files away to train from scratch", error.what()));
  }
}

std::string content_sha256(const SafetensorsFile& file) {
  Sha256 sum;
  for (const char* key : {"step", "epoch", "position", "optimizer_step", "grad_scaler",
                          "vocabulary", "data_sha256", "micro_batches_per_step"}) {
    sum.update(fmt::format("{}={}\n", key, file.require_metadata(key)));
  }
  sum.update(arithmetic_settings(file.require_metadata("config")).dump());
  std::vector<const TensorBytes*> tensors;
  for (const auto& tensor : file.tensors()) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(),
            [](const auto* a, const auto* b) { return a->name < b->name; });
  for (const auto* tensor : tensors) {
    sum.update(
        fmt::format("\n{} {} [{}]\n", tensor->name, tensor->dtype, fmt::join(tensor->shape, ",")));
    sum.update(tensor->data, tensor->size);
  }
  return sum.hex();
}

}  // namespace ddp::train
