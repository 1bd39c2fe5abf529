// Where chat templates come from: folders of transformers, and snapshots that carry them along.
#pragma once

#include <ctime>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "trainer/data/chat/chat_template.h"

namespace ddp::train {

/// A template that has not been parsed: a folder may have one that this trainer does not support
/// without being unusable for everything else.
struct ChatTemplateText {
  std::string source;                          ///< In the template language Jinja.
  std::map<std::string, std::string> special;  ///< "bos_token" -> "<s>": see ChatTemplate.
  std::string place;                           ///< Its file, or what else messages call it.
};

/// The template of a folder with a tokenizer: chat_template.jinja, else the chat_template of
/// tokenizer_config.json (the one called "default", if it has several). nullopt if there is none.
/// Throws UserError: a file that cannot be read.
std::optional<ChatTemplateText> read_chat_template(const std::string& folder);
/// The same for files that have been read, by name.
std::optional<ChatTemplateText> chat_template_in(const std::map<std::string, std::string>& files,
                                                 const std::string& folder);
/// bos_token, eos_token, unk_token and pad_token of a tokenizer_config.json, where it has them.
std::map<std::string, std::string> special_tokens(const nlohmann::json& config);

/// Throws UserError that begins with the place; what the template throws later does so, too.
/// `now`: see ChatTemplate.
ChatTemplate parse_chat_template(const ChatTemplateText& text, std::time_t now = 0);

/// For a snapshot's metadata, and back. Throws RunError: damaged.
std::string chat_template_state(const ChatTemplateText& text);
ChatTemplateText chat_template_from_state(const std::string& state);

}  // namespace ddp::train
