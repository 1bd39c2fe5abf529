// A model's chat template: renders a conversation as one text.
//
// Templates are in the template language Jinja. This interprets the subset that transformers
// supports: all statements but those that read other templates, macros included, its functions, and
// the filters, tests and methods that templates use. What is not supported, or costs more than any
// chat, is an error when it is reached, never another text. A library such as google/minja would
// neither bound what a stranger's template costs nor mark {% generation %}.
#pragma once

#include <cstddef>
#include <ctime>
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
  /// Further data of a message for templates, a JSON object in place of or next to the two above:
  /// `tool_calls` or `reasoning_content`, for example. Empty: nothing.
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
  std::vector<TextSpan> generated;  ///< The contents of {% generation %}, in order.
};

/// Immutable; may be used by several threads at a time.
class ChatTemplate {
 public:
  /// `special`: the names of special tokens in templates, such as bos_token and eos_token, and
  /// their texts. `place`: the template's file for errors, or empty. `now`: the time that
  /// strftime_now() formats; 0: the time of the call, so that all texts have one date. Throws
  /// UserError with the line of the template if it cannot be parsed.
  ChatTemplate(const std::string& source, std::map<std::string, std::string> special,
               std::string place = {}, std::time_t now = 0);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;

  /// As tokenizer.apply_chat_template(messages, tools, tokenize=False) of transformers. With
  /// `answer_next` the text ends with the beginning of an answer (add_generation_prompt). `tools`:
  /// a JSON list; empty: none. Throws UserError with the line of the template if the template
  /// raises an error or uses an unsupported feature.
  RenderedChat render(const std::vector<ChatMessage>& messages, bool answer_next,
                      const std::string& tools = {}) const;
  /// Whether its expressions contain a variable, a member or a text of this name.
  bool names(const std::string& word) const;
  /// Whether it marks what a model generates with {% generation %}, an extension of transformers.
  bool marks_generated() const { return marks_generated_; }

  std::time_t now() const { return now_; }
  const std::string& source() const { return source_; }
  const std::map<std::string, std::string>& special() const { return special_; }

 private:
  struct Program;
  std::string source_;
  std::map<std::string, std::string> special_;
  std::string place_;
  std::time_t now_;
  bool marks_generated_ = false;
  std::unique_ptr<const Program> program_;
};

}  // namespace ddp::train
