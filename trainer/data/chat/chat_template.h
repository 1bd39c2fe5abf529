// A model's chat template: how a conversation is written as one text.
//
// Templates are in the template language Jinja. No library of it is in Debian or a Python package
// as source, and known templates by name would write another text than the folder's own as soon as
// someone has changed a line; so this reads the part of the language that chat templates use: for,
// if, set, namespaces, comparisons, slices, the usual filters, tests and methods of texts. Macros,
// calls and imports are refused.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ddp::train {

/// The role of the model's own messages.
inline constexpr const char* kAssistantRole = "assistant";

struct ChatMessage {
  std::string role;  ///< system, user, assistant, ...
  std::string content;
  /// What else templates read of a message, a JSON object in place of or next to the two above:
  /// `tool_calls`, for example. Empty: nothing.
  std::string other{};
  bool operator==(const ChatMessage&) const = default;
};

/// Bytes [begin, end) of a text.
struct TextSpan {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const TextSpan&) const = default;
};

struct RenderedChat {
  std::string text;
  std::vector<TextSpan> generated;  ///< What stood in {% generation %}, in order.
};

/// Immutable; may be used by several threads at a time.
class ChatTemplate {
 public:
  /// `special`: what special tokens are called in templates, and how they are written: bos_token
  /// and eos_token, for example. Throws UserError with the line of the template: what is not
  /// supported.
  ChatTemplate(const std::string& source, std::map<std::string, std::string> special);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;

  /// As tokenizer.apply_chat_template(messages, tools, tokenize=False) of transformers, but that
  /// strftime_now is not defined: what is trained on does not depend on the day. With
  /// `answer_next`, the text in front of an answer is the end (add_generation_prompt). `tools`: a
  /// JSON list; empty: none. Throws UserError: what the template raises, or does that is not
  /// supported.
  RenderedChat render(const std::vector<ChatMessage>& messages, bool answer_next,
                      const std::string& tools = {}) const;
  /// Whether a variable, a member or a text of this name is in its expressions.
  bool names(const std::string& word) const;
  /// Whether it marks what a model generates with {% generation %}, an extension of transformers.
  bool marks_generated() const { return marks_generated_; }

  const std::string& source() const { return source_; }
  const std::map<std::string, std::string>& special() const { return special_; }

 private:
  struct Program;
  std::string source_;
  std::map<std::string, std::string> special_;
  bool marks_generated_ = false;
  std::unique_ptr<const Program> program_;
};

}  // namespace ddp::train
