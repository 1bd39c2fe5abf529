// Reads chat templates from transformers' folders and from snapshots.
#pragma once

#include <ctime>
#include <map>
#include <optional>
#include <string>

#include "trainer/data/chat/chat_template.h"

namespace ddp::train {

/// An unparsed template: a folder whose template this trainer does not support is still usable for
/// everything else.
struct ChatTemplateText {
  std::string source;                          ///< In the template language Jinja.
  std::map<std::string, std::string> special;  ///< "bos_token" -> "<s>": see ChatTemplate.
  std::string place;                           ///< Its file, or its name in messages.
};

/// Reads the template of a folder with a tokenizer: chat_template.jinja, else the chat_template of
/// tokenizer_config.json (the one called "default", if it has several). Returns nullopt if there is
/// none. Throws UserError if a file cannot be read.
std::optional<ChatTemplateText> read_chat_template(const std::string& folder);
/// The same for files already read, by name.
std::optional<ChatTemplateText> chat_template_in(const std::map<std::string, std::string>& files,
                                                 const std::string& folder);

/// Throws UserError that begins with the place; so do later errors of the template.
/// `now`: see ChatTemplate.
ChatTemplate parse_chat_template(const ChatTemplateText& text, std::time_t now = 0);

/// For a snapshot's metadata, and back. Throws RunError: damaged.
std::string chat_template_state(const ChatTemplateText& text);
ChatTemplateText chat_template_from_state(const std::string& state);

}  // namespace ddp::train
