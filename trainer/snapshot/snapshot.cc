#include "trainer/snapshot/snapshot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "trainer/interop/base_settings.h"
#include "trainer/parallel/device/page_lock.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"
#include "trainer/runtime/files/sha256.h"
#include "trainer/snapshot/state_buffer.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// The keys of the section that describes the task's model, whatever it is.
void keep_model(const Json& config, Json& kept) {
  const std::set<std::string> others = {
      "data_config",    "trainer_config", "optimizer_config", "distributed_config",
      "logging_config", "metrics_config", "profile",          "hydra"};
  // Where the model came from, and how its numbers are computed in less memory.
  const std::set<std::string> without_effect = {"model_type", "init_from", "text",
                                                "activation_checkpointing", "loss_chunk_size"};
  for (const auto& [section, keys] : config.items()) {
    if (!keys.is_object() || others.contains(section)) continue;
    if (section == "lora" && keys.at("rank") == 0) continue;  // its other keys have no effect
    if (section == "prompt_tuning" && keys.at("tokens") == 0) continue;
    for (const auto& [key, value] : keys.items()) {
      if (!without_effect.contains(key)) kept[section][key] = value;
    }
  }
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
  keep("data_config",
       {"block_size", "train_split", "stride", "min_characters", "mask_share", "mask_documents"});
  keep("trainer_config", {"batch_size", "grad_norm_clip", "seed", "use_amp", "amp_dtype", "freeze",
                          "label_smoothing", "ema_decay"});
  keep("optimizer_config", {"name", "learning_rate", "lr_schedule", "warmup_steps", "warmup_ratio",
                            "decay_steps", "min_lr", "lr_power", "weight_decay", "decay_embeddings",
                            "betas", "eps", "state_bits", "momentum", "nesterov", "param_groups"});
  keep_model(config, kept);
  return kept;
}

/// base_settings_state() wherever the pretrained model was.
std::string without_folder(const std::string& base_settings) {
  Json settings = Json::parse(base_settings, nullptr, /*allow_exceptions=*/false);
  if (!settings.is_object()) return base_settings;
  settings.erase("folder");
  return settings.dump();
}

}  // namespace

void OpenedSnapshot::load_into(const std::string& name, const torch::Tensor& target) const {
  load_into(name, TensorLayout::whole(target.sizes().vec()), target);
}

void OpenedSnapshot::load_into(const std::string& name, const TensorLayout& layout,
                               const torch::Tensor& target) const {
  const LogicalTensor* stored = file->find(name);
  if (stored == nullptr) {
    throw UserError(
        fmt::format("{}: no tensor {}: a snapshot of another model; set "
                    "trainer_config.snapshot_path to a new file to start from scratch",
                    path, name));
  }
  if (stored->shape != layout.shape || stored->dtype != dtype_name(target.scalar_type())) {
    throw UserError(
        fmt::format("{}: tensor {} is {} [{}], this model needs {} [{}]; set "
                    "trainer_config.snapshot_path to a new file to start from scratch",
                    path, name, stored->dtype, fmt::join(stored->shape, ", "),
                    dtype_name(target.scalar_type()), fmt::join(layout.shape, ", ")));
  }
  if (layout.elements() > target.numel())
    throw std::logic_error("snapshot: a part that is larger than what holds " + name);
  const torch::NoGradGuard no_grad;
  const bool direct = target.is_cpu() && target.is_contiguous();
  const auto staged =
      direct ? target : torch::empty(target.sizes(), target.options().device(torch::kCPU));
  if (layout.elements() < target.numel()) staged.zero_();
  const auto element = static_cast<int64_t>(target.element_size());
  auto* to = static_cast<std::byte*>(staged.mutable_data_ptr());
  const auto take = [&to](const std::byte* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
    to += bytes;
  };
  for (const Box& box : layout.boxes) {
    for_each_run(box, layout.shape, [&](int64_t first, int64_t count) {
      file->read(*stored, static_cast<std::size_t>(first * element),
                 static_cast<std::size_t>(count * element), take);
    });
  }
  if (!direct) target.copy_(staged);
}

OpenedSnapshot open_snapshot(const std::string& path) {
  if (!file_exists(path)) {
    throw UserError(
        fmt::format("{}: no such snapshot; give the trainer_config.snapshot_path of a run", path));
  }
  OpenedSnapshot opened = peek_snapshot(path);
  opened.file->verify_checksum();
  return opened;
}

void write_as_one_file(const OpenedSnapshot& snapshot, const std::string& path) {
  std::size_t total = 0;
  for (const auto& tensor : snapshot.file->tensors()) total += bytes_of(tensor);
  const MappedMemory memory(total);
  std::byte* to = memory.data();
  std::vector<TensorBytes> tensors;
  for (const auto& tensor : snapshot.file->tensors()) {
    const std::size_t size = bytes_of(tensor);
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape, to, size});
    snapshot.file->read(tensor, 0, size, [&to](const std::byte* from, std::size_t bytes) {
      std::memcpy(to, from, bytes);
      to += bytes;
    });
  }
  remove_stale_temporaries(path);
  publish_safetensors(path, "", snapshot.meta.to_metadata(), tensors);
}

std::string header_checksum(const OpenedSnapshot& snapshot) {
  return snapshot.file->require_metadata(kChecksumKey);
}

OpenedSnapshot peek_snapshot(const std::string& file) {
  OpenedSnapshot opened{file, {}, std::make_unique<SavedTensors>(file), {}};
  opened.meta = SnapshotMeta::from_metadata(opened.file->metadata(), file,
                                            [&] { opened.file->verify_checksum(); });
  opened.file->verify_header();
  return opened;
}

OpenedSnapshot peek_shards(const std::vector<std::string>& shards) {
  OpenedSnapshot opened{shards.at(0), shards, std::make_unique<SavedTensors>(shards), {}};
  opened.meta = SnapshotMeta::from_metadata(opened.file->metadata(), shards.front());
  return opened;
}

std::optional<OpenedSnapshot> open_if_same(const std::vector<std::string>& files,
                                           const std::string& checksum) {
  try {
    OpenedSnapshot opened = files.size() == 1 ? peek_snapshot(files.front()) : peek_shards(files);
    if (header_checksum(opened) != checksum) return std::nullopt;
    return opened;
  } catch (const std::exception&) {  // it was rank 0's to say
    return std::nullopt;
  }
}

std::string evaluated_tensor(const SavedTensors& file, const std::string& parameter) {
  const std::string average = "ema." + parameter;
  return file.find(average) != nullptr ? average : "model." + parameter;
}

std::string content_sha256(const SavedTensors& file) {
  Sha256 sum;
  for (const char* key : {"step", "epoch", "position", "optimizer_step", "grad_scaler",
                          "data_sha256", "micro_batches_per_step"}) {
    sum.update(fmt::format("{}={}\n", key, file.require_metadata(key)));
  }
  for (const auto& [key, value] : SnapshotMeta::from_metadata(file.metadata(), "").task)
    sum.update(fmt::format("{}={}\n", key, key == kBaseSettings ? without_folder(value) : value));
  sum.update(arithmetic_settings(file.require_metadata("config")).dump());
  std::vector<const LogicalTensor*> tensors;
  for (const auto& tensor : file.tensors()) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(),
            [](const auto* a, const auto* b) { return a->name < b->name; });
  for (const auto* tensor : tensors) {
    sum.update(
        fmt::format("\n{} {} [{}]\n", tensor->name, tensor->dtype, fmt::join(tensor->shape, ",")));
    file.read(*tensor, 0, bytes_of(*tensor),
              [&sum](const std::byte* data, std::size_t size) { sum.update(data, size); });
  }
  return sum.hex();
}

std::string new_run_id(const std::string& config_json, const std::string& data_sha256, int number) {
  constexpr std::size_t kDigits = 16;
  Sha256 sum;
  sum.update(arithmetic_settings(config_json).dump());
  sum.update(fmt::format("\n{}\n{}", data_sha256, number));
  return sum.hex().substr(0, kDigits);
}

}  // namespace ddp::train
