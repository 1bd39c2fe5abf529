// Reads files of conversations: one JSON object per line.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/data/chat/chat_template.h"

namespace ddp::train {

/// Called with the error.
using OnBadLine = std::function<void(const std::string& what)>;

struct Conversation {
  std::vector<ChatMessage> messages;
  std::vector<bool> trained;  ///< By message: whether it is an assistant's and to be learned.
  std::string place;          ///< "chats.jsonl:7"
  std::string tools{};        ///< Tools that the model may call: a JSON list; empty: none.
};

/// `path`: a file, a glob, or a folder with *.jsonl. A line has `messages`, a list of {role,
/// content}; or `prompt` and `completion`, texts of a user and an assistant or lists of messages,
/// of which a prompt's are not trained. An assistant's message with the weight 0 is not trained
/// either, as in OpenAI's files. `tools`, `tool_calls` and what belongs to them are for the chat
/// template, and so are all other fields of a message. Empty lines are ignored. An unusable line,
/// "FILE:LINE: reason", goes to `on_bad` or, without it, is a UserError.
std::vector<Conversation> read_conversations(const std::string& path, const OnBadLine& on_bad = {});

}  // namespace ddp::train
