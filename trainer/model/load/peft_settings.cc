#include "trainer/model/load/peft_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "trainer/config/keys/key_rows.h"
#include "trainer/hydra/compose/folders.h"
#include "trainer/model/load/pretrained_json.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/hub_name.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

using PeftJson = nlohmann::json;

/// Where another value computes something else, or changes the weights below.
std::vector<std::string> unsupported_in_peft(const PeftJson& config) {
  std::vector<std::string> found =
      differences_from_fixed(config, {{"peft_type", "LORA"},
                                      {"use_dora", false},
                                      {"use_qalora", false},
                                      {"lora_bias", false},
                                      {"bias", "none"},
                                      {"rank_pattern", PeftJson::object()},
                                      {"alpha_pattern", PeftJson::object()},
                                      {"layer_replication", nullptr},
                                      {"target_parameters", nullptr},
                                      {"exclude_modules", nullptr},
                                      {"layers_to_transform", nullptr},
                                      {"alora_invocation_tokens", nullptr},
                                      {"arrow_config", nullptr},
                                      {"kasa_config", nullptr},
                                      {"use_bdlora", nullptr},
                                      {"ensure_weight_tying", false}});
  const PeftJson start = config.value("init_lora_weights", PeftJson(true));
  const bool keeps_base = !start.is_string() || start == "gaussian" || start == "orthogonal";
  if (!keeps_base)
    found.push_back(fmt::format("init_lora_weights is {}, which changes the weights below",
                                shown(start.get<std::string>())));
  return found;
}

std::vector<std::string> targets_in_peft(const PeftJson& config) {
  const PeftJson targets = config.value("target_modules", PeftJson());
  if (targets == "all-linear") return {"*"};
  std::vector<std::string> names;
  for (const PeftJson& name : targets.is_array() ? targets : PeftJson::array())
    if (name.is_string()) names.push_back(name);
  if (!names.empty() && names.size() == targets.size()) return names;
  throw UserError(fmt::format("target_modules is {}; give adapters with a list of names",
                              shown(targets.dump())));
}

}  // namespace

nlohmann::json read_adapter_config(const std::string& folder) {
  const std::string file = folder + "/adapter_config.json";
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored)) return parse_pretrained_config(file);
  throw UserError(file +
                  ": no such file; give a folder that peft's save_pretrained or "
                  "trainer export --format peft has written");
}

void refuse_saved_modules(const nlohmann::json& config) {
  const PeftJson modules = config.value("modules_to_save", PeftJson());
  if (!modules.is_array() || modules.empty()) return;
  std::set<std::string> names;  // peft appends those of a classifier again and again
  for (const PeftJson& name : modules) names.insert(name.is_string() ? std::string(name) : "?");
  throw UserError(fmt::format(
      "modules_to_save is [{}]: layers trained in full next to the adapters; only a text "
      "classifier's own layers can be; merge them in Python (merge_and_unload(), "
      "save_pretrained()) and "
      "start from that folder",
      fmt::join(names, ", ")));
}

void check_rows_of_tokens(const std::string& folder, int64_t count, int64_t vocab_size) {
  const PeftJson rows = read_adapter_config(folder).value("trainable_token_indices", PeftJson());
  PeftJson last = PeftJson::array();
  for (int64_t id = vocab_size - count; id < vocab_size; ++id) last.push_back(id);
  const auto are_last = [&last](const PeftJson& ids) { return ids == last; };
  if (rows.is_object() ? std::ranges::all_of(rows, are_last) : rows.empty() || are_last(rows))
    return;
  throw UserError(fmt::format(
      "lora.init_from: {}: trainable_token_indices is {}, and only rows of data_config.add_tokens, "
      "which are the last tokens, here {}, are trained; list the tokens of these rows there",
      folder, shown(rows.dump()), last.dump()));
}

void follow_peft_settings(LoraConfig& lora, const Given& given, bool has_classifier) {
  const char* const key = "lora.init_from";
  if (const std::string fix = how_to_fetch_model(lora.init_from); !fix.empty())
    given.refuse(key, fix);
  lora.init_from = absolute_path(lora.init_from);
  try {
    const PeftJson config = read_adapter_config(lora.init_from);
    const PretrainedValues values(config, lora.init_from);
    std::vector<std::string> differences = unsupported_in_peft(config);
    if (!has_classifier) refuse_saved_modules(config);
    const auto follow = [&](const char* name, auto& here, const auto& there) {
      if (!given.has(std::string("lora.") + name)) here = there;
      compare_value(differences, name, there, here);
    };
    constexpr int64_t kMostRank = 10'000;
    follow("rank", lora.rank, values.number("r", 8, kMostRank));
    follow("alpha", lora.alpha, values.real("lora_alpha", 8.0, kAbove0));
    follow("use_rslora", lora.use_rslora, values.flag("use_rslora", false));
    if (!given.has("lora.dropout")) lora.dropout = values.real("lora_dropout", 0.0, kProbability);
    if (!given.has("lora.targets")) lora.targets = targets_in_peft(config);
    if (differences.empty()) return;
    throw UserError(fmt::format("does not fit: {}", fmt::join(differences, "; ")));
  } catch (const UserError& error) {
    given.refuse(key, fmt::format("{}: {}", lora.init_from, error.what()));
  }
}

}  // namespace ddp::train
