// Encodes conversations: rendered by a chat template and tokenized as one text, with the tokens
// marked that a model is to learn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/config/data_config.h"
#include "trainer/data/chat/chat_template.h"
#include "trainer/data/chat/conversations.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// A token is a target if it is to be predicted from the preceding ones.
struct EncodedChat {
  std::vector<int32_t> tokens;
  std::vector<bool> is_target;
};

/// Immutable; may be used by several threads at a time. Refers to both arguments of its
/// constructor.
///
/// The tokens are those of apply_chat_template() of transformers. With LossOn::kAssistant targets
/// are what a template encloses in {% generation %}, token by token as its
/// return_assistant_tokens_mask. For other templates they are what follows the text that asks for
/// an answer (add_generation_prompt), up to and with the special token that ends the turn: what
/// TRL's training templates enclose, and axolotl's train_on_eot: turn. A token that spans the start
/// of an answer is a target.
class ChatEncoder {
 public:
  /// Throws UserError if the template writes no assistant's turn, or ends it without a special
  /// token of the tokenizer.
  ChatEncoder(const ChatTemplate& chat, const Tokenizer& tokenizer);

  /// For LossOn::kAssistant. Throws UserError if the template does not end each answer, or ends it
  /// too early, so that other text would be learned.
  void check_answers() const;
  /// Throws UserError for anything that the template refuses or omits: tools, calls and their
  /// results; also for an answer that cannot be found in its text.
  EncodedChat encode(const Conversation& conversation, LossOn loss_on) const;
  /// Encodes `messages` followed by the template's text before an answer.
  std::vector<int32_t> encode_prompt(const std::vector<ChatMessage>& messages) const;
  /// The token that ends an assistant's turn, such as <|im_end|>.
  int32_t end_of_turn() const { return end_of_turn_; }

 private:
  void find_end_of_turn();
  void check_tools(const Conversation& conversation) const;
  std::vector<TextSpan> answers(const Conversation& conversation, const RenderedChat& whole) const;
  // Returns where the answer in message `count` (from 0) begins.
  std::size_t answer_begin(const Conversation& conversation, std::size_t count,
                           const std::string& whole) const;
  TextSpan answer_after(const Conversation& conversation, std::size_t count,
                        const std::string& whole) const;
  std::string prompt_text(const std::vector<ChatMessage>& before, const std::string& tools) const;
  void mark_targets(const Conversation& conversation, const RenderedChat& whole,
                    EncodedChat& chat) const;

  const ChatTemplate& chat_;
  const Tokenizer& tokenizer_;
  int32_t end_of_turn_ = -1;
  std::string end_text_;
  bool writes_results_ = true;  ///< Whether it writes the contents of messages of the role `tool`.
};

/// Encodes each of `conversations`, on all CPU cores that this process may use. One that cannot be
/// encoded goes to `left_out`, with its place.
std::vector<EncodedChat> encode_all(std::span<const Conversation> conversations,
                                    const ChatEncoder& encoder, LossOn loss_on, LeftOut& left_out);

}  // namespace ddp::train
