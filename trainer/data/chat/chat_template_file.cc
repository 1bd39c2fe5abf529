#include "trainer/data/chat/chat_template_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/files/small_file.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr const char* kTemplateFile = "chat_template.jinja";

/// A token is a text, or an object with one as its content.
std::string token_text(const Json& token) {
  const Json& text = token.is_object() && token.contains("content") ? token["content"] : token;
  return text.is_string() ? text.get<std::string>() : "";
}

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

std::map<std::string, std::string> special_tokens(const Json& config) {
  std::map<std::string, std::string> special;
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    if (!config.is_object() || !config.contains(name)) continue;
    if (const std::string text = token_text(config[name]); !text.empty()) special[name] = text;
  }
  return special;
}

std::optional<ChatTemplateText> chat_template_in(const std::map<std::string, std::string>& files,
                                                 const std::string& folder) {
  const fs::path config_path = fs::path(folder) / kConfigFile;
  const auto config_text = files.find(kConfigFile);
  const Json config =
      config_text == files.end() ? Json() : parse_bounded_json(config_text->second, config_path);
  if (const auto own = files.find(kTemplateFile); own != files.end())
    return ChatTemplateText{own->second, special_tokens(config), fs::path(folder) / kTemplateFile};
  const std::string source = template_of(config);
  if (source.empty()) return std::nullopt;
  return ChatTemplateText{source, special_tokens(config), config_path};
}

std::optional<ChatTemplateText> read_chat_template(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const char* name : {kConfigFile, kTemplateFile}) {
    const fs::path path = fs::path(folder) / name;
    if (auto text = read_small_file(path)) {
      files[name] = *std::move(text);
    } else if (errno != ENOENT && errno != ENOTDIR) {
      throw UserError(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
    }
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
