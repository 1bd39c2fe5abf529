// Reads files of conversations in the forms in which people share them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trainer/data/chat/chat_template.h"
#include "trainer/data/left_out.h"

namespace ddp::train {

/// Calls `take` for each row of `path`, a file, a glob, or a folder with *.jsonl, *.parquet or
/// *.arrow: the rows of RecordFile, except separated values. Rows that are no JSON, or that `take`
/// throws UserError for, go to `left_out` as "FILE:LINE: reason". Throws UserError: no such file,
/// or one that is no JSON.
void read_chat_rows(
    const std::string& path, LeftOut& left_out,
    const std::function<void(const nlohmann::ordered_json& row, const std::string& place)>& take);

/// The messages of a list, in OpenAI's or ShareGPT's form. Throws UserError.
std::vector<ChatMessage> chat_messages(const nlohmann::ordered_json& list);
/// `tools` of a row, for ChatTemplate::render(). Throws UserError.
std::string chat_tools(const nlohmann::ordered_json& row);

struct Conversation {
  std::vector<ChatMessage> messages;
  std::vector<bool> trained;  ///< By message: whether it is an assistant's and to be learned.
  std::string place;          ///< "chats.jsonl:7"
  std::string tools{};        ///< Tools that the model may call: a JSON list; empty: none.
};

/// Rows of each form, by its name: "messages (OpenAI)".
using ConversationForms = std::map<std::string, int64_t>;

/// `path`: as of read_chat_rows(). A row has one of the following, which `system` may precede:
/// - `messages`, a list of {role, content}, as OpenAI's;
/// - `conversations`, a list of {from, value}, as ShareGPT's;
/// - `instruction`, `input` (may be absent or empty) and `output`, as Alpaca's; `history`, a
///   list of [question, answer], may precede them;
/// - `prompt` and `completion`, texts of a user and an assistant or lists of messages, of which a
///   prompt's are not trained.
/// Contents are texts, or lists of parts {type: text, text}. An assistant's message with the weight
/// 0 is not trained either, as in OpenAI's files. `tools`, `tool_calls` and what belongs to them
/// are for the chat template, and so are all other fields of a message. Unusable rows, "FILE:LINE:
/// reason", go to `left_out`. `forms`, unless null, is added to. Throws UserError.
std::vector<Conversation> read_conversations(const std::string& path, LeftOut& left_out,
                                             ConversationForms* forms = nullptr);

}  // namespace ddp::train
