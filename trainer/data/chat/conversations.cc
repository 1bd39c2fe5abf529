#include "trainer/data/chat/conversations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "trainer/data/tokens/token_shards.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/utf8.h"
#include "trainer/tokenizer/bounded_json.h"

namespace ddp::train {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> kRoles = {"system", "user", kAssistantRole, "tool"};

const std::string& required_text(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  if (found != object.end() && found->is_string()) return found->get_ref<const std::string&>();
  throw UserError(fmt::format("'{}' is {}; give a text", key,
                              found == object.end() ? "missing" : quoted_part(found->dump())));
}

/// Files write null or [] where there is nothing.
bool has(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->empty();
}

// Left out, a call would be learned as an empty answer.
void refuse_old_calls(const OrderedJson& message) {
  if (!has(message, "function_call")) return;
  throw UserError(
      "'function_call' is not supported; write it as 'tool_calls': [{\"type\": \"function\", "
      "\"function\": {\"name\": ..., \"arguments\": {...}}}]");
}

/// The fields for ChatMessage::other: all that a template could name. A message that calls tools
/// may have no content.
std::string other_fields(const OrderedJson& message) {
  OrderedJson other = OrderedJson::object();
  for (const auto& [key, value] : message.items()) {
    if (key != "role" && key != "content" && key != "weight" && has(message, key.c_str()))
      other[key] = value;
  }
  if (other.contains("tool_calls") && !has(message, "content")) other["content"] = nullptr;
  return other.empty() ? "" : other.dump();
}

ChatMessage message_of(const OrderedJson& json) {
  if (!json.is_object())
    throw UserError("a message is no object; write {\"role\": ..., \"content\": ...}");
  refuse_old_calls(json);
  const std::string& role = required_text(json, "role");
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    throw UserError(
        fmt::format("unknown role {}; use system, user, assistant or tool", quoted_part(role)));
  }
  const bool calls = has(json, "tool_calls");
  if (calls && (role != kAssistantRole || !json["tool_calls"].is_array()))
    throw UserError("'tool_calls' is a list in a message of the assistant");
  const bool says_nothing = calls && (!json.contains("content") || json["content"].is_null());
  return {role, says_nothing ? "" : required_text(json, "content"), other_fields(json)};
}

/// A list, or as in files with a fixed schema, a text that holds one.
std::string tools_of(const OrderedJson& object) {
  if (!has(object, "tools")) return "";
  OrderedJson tools = object["tools"];
  if (tools.is_string())
    tools = parse_bounded_ordered_json(tools.get_ref<const std::string&>(), "'tools'");
  if (!tools.is_array())
    throw UserError("'tools' is no list; write [{\"type\": \"function\", \"function\": {...}}]");
  return tools.empty() ? "" : tools.dump();
}

/// `weight`: 0 or 1, of an assistant's message.
bool is_weighted_out(const OrderedJson& json) {
  const auto weight = json.find("weight");
  if (weight == json.end() || weight->is_null()) return false;
  if (*weight != 0 && *weight != 1)
    throw UserError(fmt::format("weight {}; use 0 or 1", quoted_part(weight->dump())));
  return *weight == 0;
}

void add_messages(const OrderedJson& list, bool trained, Conversation& conversation) {
  if (!list.is_array()) throw UserError("'messages' is no list");
  for (const OrderedJson& each : list) {
    ChatMessage message = message_of(each);
    const bool learned = trained && message.role == kAssistantRole && !is_weighted_out(each);
    conversation.messages.push_back(std::move(message));
    conversation.trained.push_back(learned);
  }
}

void add_part(const OrderedJson& object, const char* key, std::string_view role,
              Conversation& conversation) {
  const bool trained = role == kAssistantRole;
  const auto found = object.find(key);
  if (found != object.end() && found->is_array())
    return add_messages(*found, trained, conversation);
  conversation.messages.push_back({std::string(role), required_text(object, key)});
  conversation.trained.push_back(trained);
}

Conversation conversation_of(const OrderedJson& object) {
  Conversation conversation;
  if (object.is_object() && object.contains("messages")) {
    add_messages(object["messages"], /*trained=*/true, conversation);
  } else if (object.is_object() && object.contains("prompt") && object.contains("completion")) {
    add_part(object, "prompt", "user", conversation);
    add_part(object, "completion", kAssistantRole, conversation);
  } else {
    throw UserError("has neither 'messages' nor 'prompt' and 'completion'");
  }
  if (conversation.messages.empty()) throw UserError("has no messages");
  return conversation;
}

/// Python's json.dumps writes NaN and Infinity where JSON has no number: null.
std::string without_nan(std::string line) {
  bool quoted = false;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (quoted && line[at] == '\\') {
      ++at;
    } else if (line[at] == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
        if (line.compare(at, word.size(), word) == 0) line.replace(at, word.size(), "null");
      }
    }
  }
  return line;
}

Conversation read_line(const std::string& line, const std::string& place) {
  const bool may_hold_nan =
      line.find("NaN") != std::string::npos || line.find("Infinity") != std::string::npos;
  const OrderedJson json =
      parse_bounded_ordered_json(may_hold_nan ? without_nan(line) : line, place);
  try {
    Conversation conversation = conversation_of(json);
    conversation.tools = tools_of(json);
    conversation.place = place;
    return conversation;
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", place, error.what()));
  }
}

/// What other formats begin with.
void refuse_other_formats(const std::string& path, std::string_view start) {
  constexpr const char* kHow =
      "{}: is {}, not one JSON object per line; write it with datasets' Dataset.to_json(FILE)";
  if (start.starts_with("PAR1")) throw UserError(fmt::format(kHow, path, "a Parquet file"));
  if (start.starts_with('[') && (start.find_first_not_of(" \t\r", 1) == std::string_view::npos ||
                                 start.find('{') != std::string_view::npos))
    throw UserError(fmt::format(kHow, path, "a JSON array"));
}

void read_file(const std::string& path, const OnBadLine& on_bad, std::vector<Conversation>& all) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UserError(fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    if (++number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    if (number == 1) refuse_other_formats(path, line);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      all.push_back(read_line(line, fmt::format("{}:{}", path, number)));
    } catch (const UserError& error) {
      if (!on_bad) throw;
      on_bad(error.what());
    }
  }
  if (file.bad()) throw UserError(fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
}

}  // namespace

std::vector<Conversation> read_conversations(const std::string& path, const OnBadLine& on_bad) {
  const auto files = find_data_files(path, ".jsonl");
  if (files.empty()) throw UserError(path + ": no such file, glob or folder with .jsonl files");
  std::vector<Conversation> all;
  for (const std::string& file : files) read_file(file, on_bad, all);
  if (all.empty())
    throw UserError(path + ": holds no conversations; write one JSON object per line");
  return all;
}

}  // namespace ddp::train
