#include "trainer/data/chat/conversations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "trainer/data/text/record_file.h"
#include "trainer/data/tokens/token_shards.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/files/lower_extension.h"
#include "trainer/runtime/log/message.h"
#include "trainer/runtime/with_key.h"

namespace ddp::train {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> kRoles = {"system", "user", kAssistantRole, "tool"};

/// A text, or the texts of a list of parts.
std::string required_text(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  if (found != object.end() && found->is_string()) return found->get<std::string>();
  if (found == object.end() || !found->is_array() || found->empty() ||
      !found->front().is_object()) {
    throw UserError(fmt::format("'{}' is {}; give a text", key,
                                found == object.end() ? "missing" : quoted_part(found->dump())));
  }
  std::string text;
  for (const OrderedJson& part : *found) {
    if (!part.is_object() || part.value("type", OrderedJson()) != "text") {
      throw UserError(
          fmt::format("'{}' has the part {}; a language model takes parts of the type "
                      "text only",
                      key, quoted_part(part.dump())));
    }
    text += required_text(part, "text");
  }
  return text;
}

/// Files write null, [] or "" where there is nothing.
bool has(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->empty() && *found != "";
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
    if (key != "role" && key != "content" && key != "weight" && !value.empty()) other[key] = value;
  }
  const bool says_nothing = !message.contains("content") || message["content"].is_null();
  if (other.contains("tool_calls") && says_nothing) other["content"] = nullptr;
  return other.empty() ? "" : other.dump();
}

/// ShareGPT's `from` and `value` as `role` and `content`, whose other fields stay.
OrderedJson with_usual_names(OrderedJson message) {
  static const std::map<std::string, std::string_view> kNames = {
      {"human", "user"},        {"gpt", kAssistantRole},      {"chatgpt", kAssistantRole},
      {"bing", kAssistantRole}, {"bard", kAssistantRole},     {"model", kAssistantRole},
      {"observation", "tool"},  {"function_response", "tool"}};
  if (message.contains("role") || !message.contains("from")) return message;
  const std::string from = required_text(message, "from");
  const auto name = kNames.find(from);
  message["role"] = name == kNames.end() ? from : std::string(name->second);
  message.erase("from");
  if (!message.contains("content") && message.contains("value")) {
    message["content"] = message["value"];
    message.erase("value");
  }
  return message;
}

ChatMessage message_of(const OrderedJson& json) {
  refuse_old_calls(json);
  const std::string role = required_text(json, "role");
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

/// `weight`: 0 or 1, of an assistant's message.
bool is_weighted_out(const OrderedJson& json) {
  const auto weight = json.find("weight");
  if (weight == json.end() || weight->is_null()) return false;
  if (*weight != 0 && *weight != 1)
    throw UserError(fmt::format("weight {}; use 0 or 1", quoted_part(weight->dump())));
  return *weight == 0;
}

void add_messages(const OrderedJson& list, bool trained, Conversation& conversation) {
  if (!list.is_array()) throw UserError("the messages are not a list");
  for (const OrderedJson& original : list) {
    if (!original.is_object())
      throw UserError("a message is not an object; write {\"role\": ..., \"content\": ...}");
    const OrderedJson each = with_usual_names(original);
    ChatMessage message = message_of(each);
    const bool learned = trained && message.role == kAssistantRole && !is_weighted_out(each);
    conversation.messages.push_back(std::move(message));
    conversation.trained.push_back(learned);
  }
}

void add_text(std::string_view role, std::string text, Conversation& conversation) {
  conversation.messages.push_back({std::string(role), std::move(text)});
  conversation.trained.push_back(role == kAssistantRole);
}

void add_part(const OrderedJson& object, const char* key, std::string_view role,
              Conversation& conversation) {
  const auto found = object.find(key);
  if (found != object.end() && found->is_array())
    return add_messages(*found, role == kAssistantRole, conversation);
  add_text(role, required_text(object, key), conversation);
}

void add_system(const OrderedJson& object, Conversation& conversation) {
  if (has(object, "system")) add_text("system", required_text(object, "system"), conversation);
}

/// Alpaca's: the input is a part of the question.
void add_instruction(const OrderedJson& object, Conversation& conversation) {
  if (has(object, "history")) {
    for (const OrderedJson& turn : object["history"]) {
      if (!turn.is_array() || turn.size() != 2 || !turn[0].is_string() || !turn[1].is_string())
        throw UserError("'history' is not a list of [question, answer]");
      add_text("user", turn[0], conversation);
      add_text(kAssistantRole, turn[1], conversation);
    }
  }
  std::string question = required_text(object, "instruction");
  if (has(object, "input")) question += "\n" + required_text(object, "input");
  add_text("user", std::move(question), conversation);
  add_text(kAssistantRole, required_text(object, "output"), conversation);
}

std::string names_of(const OrderedJson& object) {
  std::vector<std::string> names;
  for (const auto& item : object.items()) names.push_back(item.key());
  return shown_list(names);
}

/// Returns the name of its form.
const char* read_form(const OrderedJson& object, Conversation& conversation) {
  // A table has all columns in each row, null where a row lacks one.
  const auto holds = [&](const char* key) {
    return object.contains(key) && !object[key].is_null();
  };
  if (!object.is_object())
    throw UserError("is not an object; write one per line, or an array of objects");
  add_system(object, conversation);
  if (holds("messages")) {
    add_messages(object["messages"], /*trained=*/true, conversation);
    return "messages (OpenAI)";
  }
  if (holds("conversations")) {
    add_messages(object["conversations"], /*trained=*/true, conversation);
    return "conversations (ShareGPT)";
  }
  if (holds("instruction") && holds("output")) {
    add_instruction(object, conversation);
    return "instruction, input and output (Alpaca)";
  }
  if (holds("prompt") && holds("completion")) {
    add_part(object, "prompt", "user", conversation);
    add_part(object, "completion", kAssistantRole, conversation);
    return "prompt and completion";
  }
  throw UserError(
      fmt::format("has neither 'messages', 'conversations', 'instruction' and 'output', nor "
                  "'prompt' and 'completion'; its names are {}",
                  names_of(object)));
}

Conversation read_row(const OrderedJson& json, const std::string& place, ConversationForms* forms) {
  Conversation conversation;
  const char* form = read_form(json, conversation);
  const auto& messages = conversation.messages;
  const std::size_t own = has(json, "system") ? 1 : 0;
  if (messages.size() == own) throw UserError("has no messages");
  if (own > 0 && messages[1].role == "system")
    throw UserError("has 'system' and a message of that role; remove one of them");
  conversation.tools = chat_tools(json);
  conversation.place = place;
  if (forms != nullptr) ++(*forms)[form];
  return conversation;
}

using TakeRow = std::function<void(const OrderedJson& row, const std::string& place)>;

void read_file(const std::string& path, LeftOut& left_out, const TakeRow& take) {
  RecordFile file(path);
  if (!file.is_json())
    throw UserError(path +
                    ": is a table; write JSON lines, such as pandas' to_json(orient="
                    "'records', lines=True)");
  bool more = true;
  for (Record record; more;) {
    try {
      more = file.next(record);
      if (!more) break;
      const std::string place = fmt::format("{}:{}", path, record.line);
      const OrderedJson json = parse_bounded_ordered_json(record.text, place);
      with_key(place, [&] { take(json, place); });
    } catch (const BrokenFileError&) {
      throw;
    } catch (const UserError& error) {
      left_out.found(error.what());
    }
  }
}

/// The files that `path` means; a folder has one kind of them, as two may hold the same rows.
std::vector<std::string> chat_files(const std::string& path) {
  std::vector<std::string_view> extensions = {".jsonl"};
  extensions.insert(extensions.end(), kTableExtensions.begin(), kTableExtensions.end());
  std::vector<std::string> files;
  for (const std::string_view extension : extensions) {
    auto more = find_data_files(path, extension);
    if (more.empty() || more == files) continue;  // a file or a glob is the same for each
    if (!files.empty()) {
      throw UserError(fmt::format("{0}: holds {1} and {2} files; name one kind, '{0}/*{1}'", path,
                                  lower_extension(files.front()), extension));
    }
    files = std::move(more);
  }
  if (!files.empty()) return files;
  throw UserError(fmt::format("{}: no such file, glob or folder with {} files", path,
                              fmt::join(extensions, ", ")));
}

}  // namespace

void read_chat_rows(const std::string& path, LeftOut& left_out, const TakeRow& take) {
  for (const std::string& file : chat_files(path)) read_file(file, left_out, take);
}

std::vector<ChatMessage> chat_messages(const OrderedJson& list) {
  Conversation conversation;
  add_messages(list, /*trained=*/true, conversation);
  return std::move(conversation.messages);
}

// A list, or as in files with a fixed schema, a text that holds one.
std::string chat_tools(const OrderedJson& object) {
  if (!has(object, "tools")) return "";
  OrderedJson tools = object["tools"];
  if (tools.is_string())
    tools = parse_bounded_ordered_json(tools.get_ref<const std::string&>(), "'tools'");
  if (!tools.is_array())
    throw UserError("'tools' is not a list; write [{\"type\": \"function\", \"function\": {...}}]");
  return tools.empty() ? "" : tools.dump();
}

std::vector<Conversation> read_conversations(const std::string& path, LeftOut& left_out,
                                             ConversationForms* forms) {
  std::vector<Conversation> all;
  read_chat_rows(path, left_out, [&](const OrderedJson& row, const std::string& place) {
    all.push_back(read_row(row, place, forms));
  });
  if (all.empty())
    throw UserError(path + ": holds no conversations; write one JSON object per line");
  return all;
}

}  // namespace ddp::train
