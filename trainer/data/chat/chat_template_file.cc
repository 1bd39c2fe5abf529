#include "trainer/data/chat/chat_template_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/json_error.h"
#include "trainer/runtime/files/small_file.h"
#include "trainer/tokenizer/bounded_json.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// nullopt if there is no such file.
std::optional<std::string> read_if_there(const fs::path& path) {
  auto text = read_small_file(path);
  if (text || errno == ENOENT || errno == ENOTDIR) return text;
  throw UserError(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
}

/// A token is a text, or an object with one as its content.
std::string token_text(const Json& token) {
  const Json& text = token.is_object() && token.contains("content") ? token["content"] : token;
  return text.is_string() ? text.get<std::string>() : "";
}

std::map<std::string, std::string> special_tokens(const Json& config) {
  std::map<std::string, std::string> special;
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    if (!config.is_object() || !config.contains(name)) continue;
    if (const std::string text = token_text(config[name]); !text.empty()) special[name] = text;
  }
  return special;
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

std::optional<ChatTemplateText> read_chat_template(const std::string& folder) {
  const fs::path config_path = fs::path(folder) / "tokenizer_config.json";
  const fs::path own_file = fs::path(folder) / "chat_template.jinja";
  const auto config_text = read_if_there(config_path);
  const Json config = config_text ? parse_bounded_json(*config_text, config_path) : Json();
  if (const auto own = read_if_there(own_file))
    return ChatTemplateText{*own, special_tokens(config), own_file};
  const std::string source = template_of(config);
  if (source.empty()) return std::nullopt;
  return ChatTemplateText{source, special_tokens(config), config_path};
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
