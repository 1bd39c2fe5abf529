#include "trainer/tokenizer/special_tokens.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/files/small_file.h"

namespace ddp::train {
namespace {

using Json = nlohmann::json;

/// A token is a text, or an object with one as its content.
std::string token_text(const Json& token) {
  const Json& text = token.is_object() && token.contains("content") ? token["content"] : token;
  return text.is_string() ? text.get<std::string>() : "";
}

/// Null: no such file.
Json object_in(const std::filesystem::path& path) {
  const auto text = read_file_if_present(path);
  if (!text) return nullptr;
  Json json = parse_bounded_json(*text, path);
  if (!json.is_object())
    throw UserError(path.string() + ": not a JSON object; download the file again");
  return json;
}

/// transformers reads no special_tokens_map.json next to such a tokenizer_config.json.
bool has_all_tokens(const Json& config) {
  return config.is_object() && config.contains("added_tokens_decoder");
}

}  // namespace

std::map<std::string, std::string> named_special_tokens(const Json& config, const Json& map) {
  std::map<std::string, std::string> special;
  const Json none;
  for (const Json* file : {has_all_tokens(config) ? &none : &map, &config}) {
    for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
      if (!file->is_object() || !file->contains(name)) continue;
      const std::string text = token_text((*file)[name]);
      if (!text.empty()) special.emplace(name, text);
    }
  }
  return special;
}

std::string end_of_text_in(const std::string& folder) {
  const std::filesystem::path place(folder);
  const Json config = object_in(place / "tokenizer_config.json");
  const Json map = has_all_tokens(config) ? Json() : object_in(place / "special_tokens_map.json");
  const auto special = named_special_tokens(config, map);
  const auto end = special.find("eos_token");
  return end == special.end() ? "" : end->second;
}

std::string without_end_mark(std::string state) {
  constexpr std::string_view kMark = ",\"end_of_text\":true";  // in no string: its quotes are bare
  if (const std::size_t at = state.find(kMark); at != std::string::npos)
    state.erase(at, kMark.size());
  return state;
}

}  // namespace ddp::train
