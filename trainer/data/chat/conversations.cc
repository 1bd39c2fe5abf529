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

using Json = nlohmann::json;

constexpr std::array<std::string_view, 4> kRoles = {"system", "user", kAssistantRole, "tool"};

const std::string& required_text(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found != object.end() && found->is_string()) return found->get_ref<const std::string&>();
  throw UserError(fmt::format("'{}' is {}; give a text", key,
                              found == object.end() ? "missing" : quoted_part(found->dump())));
}

// Left out, a call would be learned as an empty answer. Files write null or [] where there is none.
void refuse_calls(const Json& message) {
  for (const char* key : {"tool_calls", "function_call"}) {
    const auto found = message.find(key);
    if (found == message.end() || found->empty()) continue;
    throw UserError(fmt::format(
        "'{}' is not supported; write the call into 'content' as the model is to say it, or leave "
        "this conversation out",
        key));
  }
}

ChatMessage message_of(const Json& json) {
  if (!json.is_object())
    throw UserError("a message is no object; write {\"role\": ..., \"content\": ...}");
  refuse_calls(json);
  ChatMessage message{required_text(json, "role"), required_text(json, "content")};
  if (std::find(kRoles.begin(), kRoles.end(), message.role) != kRoles.end()) return message;
  throw UserError(fmt::format("unknown role {}; use system, user, assistant or tool",
                              quoted_part(message.role)));
}

/// `weight`: 0 or 1, of an assistant's message.
bool is_weighted_out(const Json& json) {
  const auto weight = json.find("weight");
  if (weight == json.end() || weight->is_null()) return false;
  if (*weight != 0 && *weight != 1)
    throw UserError(fmt::format("weight {}; use 0 or 1", quoted_part(weight->dump())));
  return *weight == 0;
}

void add_messages(const Json& list, bool trained, Conversation& conversation) {
  if (!list.is_array()) throw UserError("'messages' is no list");
  for (const Json& each : list) {
    ChatMessage message = message_of(each);
    const bool learned = trained && message.role == kAssistantRole && !is_weighted_out(each);
    conversation.messages.push_back(std::move(message));
    conversation.trained.push_back(learned);
  }
}

void add_part(const Json& object, const char* key, std::string_view role,
              Conversation& conversation) {
  const bool trained = role == kAssistantRole;
  const auto found = object.find(key);
  if (found != object.end() && found->is_array())
    return add_messages(*found, trained, conversation);
  conversation.messages.push_back({std::string(role), required_text(object, key)});
  conversation.trained.push_back(trained);
}

Conversation conversation_of(const Json& object) {
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

void read_file(const std::string& path, std::vector<Conversation>& all) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UserError(fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    if (++number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = fmt::format("{}:{}", path, number);
    const Json json = parse_bounded_json(line, place);
    try {
      all.push_back(conversation_of(json));
    } catch (const UserError& error) {
      throw UserError(fmt::format("{}: {}", place, error.what()));
    }
    all.back().place = place;
  }
  if (file.bad()) throw UserError(fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
}

}  // namespace

std::vector<Conversation> read_conversations(const std::string& path) {
  const auto files = find_data_files(path, ".jsonl");
  if (files.empty()) throw UserError(path + ": no such file, glob or folder with .jsonl files");
  std::vector<Conversation> all;
  for (const std::string& file : files) read_file(file, all);
  if (all.empty())
    throw UserError(path + ": holds no conversations; write one JSON object per line");
  return all;
}

}  // namespace ddp::train
