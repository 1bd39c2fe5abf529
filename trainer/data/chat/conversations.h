// Files of conversations: one JSON object on each line.
#pragma once

#include <string>
#include <vector>

#include "trainer/data/chat/chat_template.h"

namespace ddp::train {

struct Conversation {
  std::vector<ChatMessage> messages;
  std::vector<bool> trained;  ///< By message: an assistant's that is to be learned.
  std::string place;          ///< "chats.jsonl:7"
  std::string tools{};        ///< That the model may call: a JSON list; empty: none.
};

/// `path`: a file, a glob, or a folder with *.jsonl. A line has `messages`, a list of {role,
/// content}; or `prompt` and `completion`, texts of a user and an assistant or lists of messages,
/// of which a prompt's are not trained. An assistant's message with the weight 0 is not trained
/// either, as in OpenAI's files. `tools`, `tool_calls` and what belongs to them are for the chat
/// template; other fields and empty lines are ignored. Throws UserError: "FILE:LINE: what is wrong
/// with it".
std::vector<Conversation> read_conversations(const std::string& path);

}  // namespace ddp::train
