#include "trainer/interop/base_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "trainer/model/load/pretrained_json.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/files/small_file.h"
#include "trainer/runtime/log/message.h"
#include "trainer/tokenizer/special_tokens.h"
#include "trainer/tokenizer/tokenizer_folder.h"
#include "trainer/tokenizer/with_added_tokens.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using SettingsJson = nlohmann::json;

constexpr const char* kOfModel[] = {"config.json", "generation_config.json"};
constexpr const char* kOfTokenizer[] = {"tokenizer_config.json", "special_tokens_map.json",
                                        "added_tokens.json", "chat_template.jinja"};
constexpr const char* kLargeFiles[] = {"tokenizer.json", "vocab.json", "merges.txt", "vocab.txt",
                                       "tokenizer.model"};

void take_text(const fs::path& folder, const char* name, SettingsJson& files) {
  const fs::path path = folder / name;
  const auto text = read_file_if_present(path);
  if (!text) return;
  if (path.extension() == ".json" && !parse_bounded_json(*text, path).is_object())
    throw UserError(path.string() + ": not a JSON object; download the file again");
  files[name] = *text;
}

/// How many tokens were appended to the tokenizer of `folder` to make this one; nullopt: it was not
/// made of that one.
std::optional<std::size_t> appended_to(const std::string& folder, const Tokenizer& tokenizer) {
  try {
    if (!holds_tokenizer(folder)) return std::nullopt;
    auto there = load_tokenizer(folder);
    std::vector<std::string> appended;
    for (auto id = static_cast<int32_t>(there->size()); id < tokenizer.size(); ++id) {
      appended.push_back(tokenizer.decode(id));
      if (tokenizer.token_of(appended.back()) != id) return std::nullopt;
    }
    there = with_added_tokens(std::move(there), appended);
    const bool same = without_end_mark(there->state()) == without_end_mark(tokenizer.state());
    return same ? std::optional(appended.size()) : std::nullopt;
  } catch (const UserError&) {
    return std::nullopt;  // of a kind that cannot be read, so that another one was named
  }
}

/// A snapshot's author chooses the names in it, and export writes files of these names.
bool is_known(std::string_view name) {
  const auto among = [name](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return among(kOfModel) || among(kOfTokenizer) || among(kLargeFiles);
}

std::string state_of_folder(const std::string& path, bool same_tokenizer) {
  const fs::path folder = fs::absolute(path).lexically_normal();
  SettingsJson files = SettingsJson::object();
  for (const char* name : kOfModel) take_text(folder, name, files);
  if (files.empty()) return "";
  if (same_tokenizer) {
    for (const char* name : kOfTokenizer) take_text(folder, name, files);
    std::error_code ignored;
    for (const char* name : kLargeFiles) {
      if (fs::exists(folder / name, ignored)) files[name] = nullptr;
    }
  }
  return SettingsJson{
      {"folder", folder.string()}, {"same_tokenizer", same_tokenizer}, {"files", std::move(files)}}
      .dump(-1, ' ', false, SettingsJson::error_handler_t::replace);
}

SettingsJson json_of(const BaseSettings& base, const char* file) {
  const auto text = base.texts.find(file);
  return text == base.texts.end() ? SettingsJson::object()
                                  : parse_bounded_json(text->second, base.folder + "/" + file);
}

/// A number, or a list of them; nothing if it is absent or null.
std::vector<int32_t> end_ids(const BaseSettings& base, const char* file) {
  const SettingsJson config = json_of(base, file);
  const auto given = config.is_object() ? config.find("eos_token_id") : config.end();
  if (given == config.end() || given->is_null()) return {};
  std::vector<int32_t> ids;
  for (const SettingsJson& id : given->is_array() ? *given : SettingsJson::array({*given})) {
    if (!id.is_number_integer() || id < std::numeric_limits<int32_t>::min() ||
        id > std::numeric_limits<int32_t>::max()) {
      throw UserError(
          fmt::format("{}/{}: eos_token_id is {}; give the id of a token, or a list of them",
                      base.folder, file, shown(given->dump())));
    }
    ids.push_back(id);
  }
  return ids;
}

}  // namespace

std::string base_settings_state(const std::string& path, const Tokenizer* tokenizer) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    return state_of_folder(path, tokenizer == nullptr || appended_to(path, *tokenizer));
  std::string state;
  if (!fs::is_regular_file(path, ignored)) return state;
  with_pretrained_snapshot(
      path, {TaskKind::kCausalLm, TaskKind::kMaskedLm, TaskKind::kTextClassification},
      [&](const SettingsJson& metadata, const SettingsJson&, const std::string&) {
        state = metadata.value(kBaseSettings, "");
      });
  return state;
}

std::optional<BaseSettings> base_settings_of(const std::map<std::string, std::string>& metadata) {
  const auto state = metadata.find(kBaseSettings);
  if (state == metadata.end() || state->second.empty()) return std::nullopt;
  try {
    const SettingsJson json = SettingsJson::parse(state->second);
    BaseSettings base{json.at("folder"), json.at("same_tokenizer"), {}, {}};
    for (const auto& [name, text] : json.at("files").items()) {
      if (!is_known(name))
        throw RunError("damaged settings of the pretrained model in the snapshot");
      if (text.is_null()) {
        base.large.push_back(name);
      } else {
        base.texts[name] = text;
      }
    }
    return base;
  } catch (const SettingsJson::exception& error) {
    throw RunError(fmt::format("damaged settings of the pretrained model in the snapshot: {}",
                               plain_json_error(error.what())));
  }
}

std::vector<std::string> take_large_files(BaseSettings& base, const std::string& folder,
                                          const Tokenizer& tokenizer) {
  constexpr uint64_t kMostBytes = uint64_t{128} << 20U;
  const auto appended = base.large.empty() ? std::nullopt : appended_to(folder, tokenizer);
  std::vector<std::string> missing;
  for (const std::string& name : base.large) {
    const bool same = appended && (*appended == 0 || name != "tokenizer.json");
    auto text = same ? read_small_file(folder + "/" + name, kMostBytes) : std::nullopt;
    if (text) {
      base.texts[name] = *std::move(text);
    } else {
      missing.push_back(name);
    }
  }
  return missing;
}

std::string base_dtype(const BaseSettings& base) {
  const SettingsJson config = json_of(base, "config.json");
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (const auto type = config.find(key); type != config.end() && type->is_string()) return *type;
  }
  return "";
}

std::vector<int32_t> stop_tokens(const std::map<std::string, std::string>& metadata,
                                 const Tokenizer& tokenizer) {
  std::vector<int32_t> ends;
  if (const auto end = tokenizer.end_of_text()) ends.push_back(*end);
  const auto base = base_settings_of(metadata);
  if (!base || !base->same_tokenizer) return ends;
  auto given = end_ids(*base, "generation_config.json");
  if (given.empty()) given = end_ids(*base, "config.json");
  ends.insert(ends.end(), given.begin(), given.end());
  const auto special = named_special_tokens(json_of(*base, "tokenizer_config.json"),
                                            json_of(*base, "special_tokens_map.json"));
  if (const auto named = special.find("eos_token"); named != special.end()) {
    if (const auto token = tokenizer.token_of(named->second)) ends.push_back(*token);
  }
  return ends;
}

std::string sampling_of_base(const std::map<std::string, std::string>& metadata) {
  const auto base = base_settings_of(metadata);
  if (!base) return "";
  const SettingsJson config = json_of(*base, "generation_config.json");
  std::string options;
  const bool samples = config.value("do_sample", SettingsJson()) == true;
  for (const auto& [name, without] :
       {std::pair("temperature", 1.0), std::pair("top_k", 0.0), std::pair("top_p", 1.0),
        std::pair("min_p", 0.0), std::pair("repetition_penalty", 1.0)}) {
    const auto value = config.value(name, SettingsJson());
    if (!samples && name != std::string_view("repetition_penalty")) continue;
    if (value.is_number() && value != without)
      options += fmt::format(" --{} {}", name, value.dump());
  }
  return options;
}

}  // namespace ddp::train
