#include "trainer/model/load/pretrained_json.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/files/small_file.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

using PretrainedJson = nlohmann::json;

void check_is_not_adapters(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder / "adapter_config.json", ignored)) return;
  throw UserError(fmt::format(
      "{}: holds adapters for peft (adapter_config.json), not a whole model; give the snapshot "
      "that they were exported from, or export it with --merge",
      folder.string()));
}

std::string pretrained_text(const std::string& path) {
  if (auto text = read_small_file(path)) return *std::move(text);
  const int error = errno;
  check_is_not_adapters(std::filesystem::path(path).parent_path());
  throw UserError(fmt::format("{}: {}; {}", path, std::strerror(error), kHowToMakePretrained));
}

void check_task_is_one_of(const std::string& path, const std::string& task,
                          const std::vector<TaskKind>& tasks) {
  std::vector<std::string> names;
  for (const TaskKind wanted : tasks) {
    names.emplace_back(task_name(wanted));
    if (wanted == TaskKind::kCausalLm) names.emplace_back(task_name(TaskKind::kPreference));
  }
  if (std::find(names.begin(), names.end(), task) != names.end()) return;
  throw UserError(fmt::format("{}: is a snapshot of task {}; give one of {}", path, task,
                              fmt::join(names, " or ")));
}

void check_is_whole_model(const std::string& path, const PretrainedJson& config) {
  const auto number = [&](const char* section, const char* key) {
    return config.contains(section) ? config[section].value(key, 0) : 0;
  };
  if (number("prompt_tuning", "tokens") > 0) {
    throw UserError(fmt::format(
        "{}: is a snapshot of virtual tokens (prompt_tuning.tokens), not of a whole model; start "
        "from its init_from, and give prompt_tuning.init_from the folder that trainer export "
        "--snapshot {} --format peft writes",
        path, path));
  }
  if (number("lora", "rank") == 0) return;
  throw UserError(fmt::format(
      "{}: is a snapshot of adapters (lora.rank), not of a whole model; merge them first: trainer "
      "export --snapshot {} --merge --output FOLDER, and start from that folder",
      path, path));
}

/// Throws UserError if the weights are codes of a kind that is not read.
void check_quantization(const nlohmann::json& config, const std::string& path) {
  const auto found = config.find("quantization_config");
  if (found == config.end() || !found->is_object()) return;
  const auto is_true = [&](const char* key) {
    return found->contains(key) && found->at(key) == true;
  };
  if (is_true("load_in_4bit") || is_true("load_in_8bit")) return;  // bitsandbytes
  const auto method = found->find("quant_method");
  const std::string name = method != found->end() && method->is_string()
                               ? method->get<std::string>()
                               : "another program";
  throw UserError(
      fmt::format("{}: quantization_config: weights quantized by {} are not read; give the folder "
                  "of the original model, and quantize.base to quantize it here",
                  path, name));
}

}  // namespace

std::pair<nlohmann::json, uint64_t> safetensors_header(const std::string& path) {
  constexpr uint64_t kLongest = 100'000'000;  // as the reader of weights
  std::error_code ignored;
  std::ifstream file;  // of a pipe or a device nothing is read
  if (std::filesystem::is_regular_file(path, ignored)) {
    file.open(path, std::ios::binary);
    if (!file.is_open()) throw UnreadableError(path, errno);
  }
  unsigned char head[8] = {};
  file.read(reinterpret_cast<char*>(head), sizeof head);
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8U | head[i];
  std::string text(file && length <= kLongest ? length : 0, ' ');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  const bool readable = file.good() && !nests_too_deeply(text);
  if (!readable) return {};
  return {PretrainedJson::parse(text, nullptr, false), length + sizeof head};
}

void note_on_one_rank(const std::string& text) {
  const char* rank = std::getenv("RANK");
  if (rank == nullptr || std::string_view(rank) == "0") fmt::print(stderr, "{}\n", text);
}

nlohmann::json snapshot_metadata(const std::string& path) {
  const auto header = safetensors_header(path).first;
  if (header.is_object() && header.contains("__metadata__")) return header["__metadata__"];
  throw UserError(fmt::format("{}: is neither a snapshot of this trainer nor a folder; {}", path,
                              kHowToMakePretrained));
}

nlohmann::json parse_pretrained_config(const std::string& path) {
  const std::string text = pretrained_text(path);
  if (nests_too_deeply(text))
    throw UserError(fmt::format("{}: nested too deeply; {}", path, kHowToMakePretrained));
  const auto config = PretrainedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object())
    throw UserError(fmt::format("{}: not a JSON object; {}", path, kHowToMakePretrained));
  check_quantization(config, path);
  return config;
}

bool PretrainedValues::has(const char* key) const {
  const auto value = config_.find(key);
  return value != config_.end() && !value->is_null();
}

int64_t PretrainedValues::number(const char* key, int64_t otherwise, int64_t most) const {
  const auto value = get(key, otherwise, &PretrainedJson::is_number_integer);
  if (has(key) && value < 1) fail(key, ", not >= 1");
  if (value <= most) return value;
  throw UserError(
      fmt::format("{}: {} is {}, above {}; {}", path_, key, value, most, kHowToMakePretrained));
}

int64_t PretrainedValues::whole(const char* key, int64_t otherwise) const {
  const auto value = get(key, otherwise, &PretrainedJson::is_number_integer);
  if (value < 0 || value > kMostPositions) fail(key);
  return value;
}

bool PretrainedValues::flag(const char* key, bool otherwise) const {
  return get(key, otherwise, &PretrainedJson::is_boolean);
}

double PretrainedValues::real(const char* key, double otherwise, const Range& range) const {
  const auto value = get(key, otherwise, &PretrainedJson::is_number);
  if (has(key) && !range.holds(value)) fail(key, ", not " + range.str());
  return value;
}

std::string PretrainedValues::text(const char* key, const std::string& otherwise) const {
  return get(key, otherwise, &PretrainedJson::is_string);
}

template <class T>
T PretrainedValues::get(const char* key, const T& otherwise,
                        bool (nlohmann::json::*is_of_type)() const) const {
  if (!has(key)) return otherwise;
  if (!(config_[key].*is_of_type)()) fail(key);
  return config_[key].get<T>();
}

void PretrainedValues::fail(const char* key, const std::string& expected) const {
  throw UserError(fmt::format("{}: {} is {}{}; {}", path_, key, shown(config_[key].dump()),
                              expected, kHowToMakePretrained));
}

std::vector<std::string> differences_from_fixed(const nlohmann::json& config,
                                                const std::vector<FixedKey>& keys) {
  const auto text = [](const nlohmann::json& value) {
    return shown(value.is_string() ? value.get<std::string>() : value.dump());
  };
  std::vector<std::string> found;
  for (const FixedKey& key : keys) {
    const auto there = config.find(key.name);
    if (there == config.end() || there->is_null() || *there == key.value) continue;
    found.push_back(key.value.is_null()
                        ? fmt::format("{} is set", key.name)
                        : fmt::format("{} is {}, not {}", key.name, text(*there), text(key.value)));
  }
  return found;
}

void with_pretrained_snapshot(const std::string& path, const std::vector<TaskKind>& tasks,
                              const TakeSnapshot& take) {
  const PretrainedJson metadata = snapshot_metadata(path);
  try {
    const auto config = PretrainedJson::parse(metadata.at("config").get<std::string>());
    const auto task = metadata.value("task", std::string(task_name(TaskKind::kCausalLm)));
    check_task_is_one_of(path, task, tasks);
    check_is_whole_model(path, config);
    take(metadata, config, task);
  } catch (const PretrainedJson::exception&) {
    throw UserError(
        fmt::format("{}: its metadata is not that of a snapshot; {}", path, kHowToMakePretrained));
  }
}

}  // namespace ddp::train
