#include "trainer/data/chat/chat_template_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/files/small_file.h"
#include "trainer/tokenizer/special_tokens.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr const char* kMapFile = "special_tokens_map.json";
constexpr const char* kTemplateFile = "chat_template.jinja";

std::string text_member(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string()
             ? object[key].get<std::string>()
             : "";
}

/// A text, or a list of {name, template}.
std::string template_of(const Json& config) {
  if (!config.is_object() || !config.contains("chat_template")) return "";
  const Json& given = config["chat_template"];
  if (!given.is_array()) return text_member(config, "chat_template");
  for (const Json& each : given) {
    if (text_member(each, "name") == "default") return text_member(each, "template");
  }
  return "";
}

}  // namespace

std::optional<ChatTemplateText> chat_template_in(const std::map<std::string, std::string>& files,
                                                 const std::string& folder) {
  const auto json_of = [&](const char* name) {
    const auto text = files.find(name);
    return text == files.end() ? Json() : parse_bounded_json(text->second, fs::path(folder) / name);
  };
  const Json config = json_of(kConfigFile);
  const auto own = files.find(kTemplateFile);
  const std::string source = own != files.end() ? own->second : template_of(config);
  if (source.empty() && own == files.end()) return std::nullopt;
  return ChatTemplateText{source, named_special_tokens(config, json_of(kMapFile)),
                          fs::path(folder) / (own != files.end() ? kTemplateFile : kConfigFile)};
}

std::optional<ChatTemplateText> read_chat_template(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const char* name : {kConfigFile, kMapFile, kTemplateFile}) {
    if (auto text = read_file_if_present(fs::path(folder) / name)) files[name] = *std::move(text);
  }
  return chat_template_in(files, folder);
}

ChatTemplate parse_chat_template(const ChatTemplateText& text, std::time_t now) {
  return ChatTemplate(text.source, text.special, text.place, now);
}

std::string chat_template_state(const ChatTemplateText& text) {
  return Json{{"source", text.source}, {"special", text.special}}.dump();
}

ChatTemplateText chat_template_from_state(const std::string& state) {
  try {
    const Json json = Json::parse(state);
    return {json.at("source").get<std::string>(),
            json.at("special").get<std::map<std::string, std::string>>(), "the snapshot"};
  } catch (const Json::exception& error) {
    throw RunError(
        fmt::format("damaged chat template in the snapshot: {}", plain_json_error(error.what())));
  }
}

}  // namespace ddp::train
