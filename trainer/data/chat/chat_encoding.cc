#include "trainer/data/chat/chat_encoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <thread>

#include "trainer/runtime/error.h"
#include "trainer/runtime/process/prefetcher.h"
#include "trainer/tokenizer/normal_form.h"

namespace ddp::train {
namespace {

constexpr const char* kPlaceholder = "\uE0F0";  // begins no text of a template
constexpr const char* kFix =
    "enclose answers in {% generation %} in the template, or set data_config.loss_on=all";

/// Where each token ends in `text`. nullopt if their bytes are not the text's: it was normalized.
/// White space may be lost to an added token that takes it along, and a space may have been put in
/// front of a word, as SentencePiece does.
std::optional<std::vector<std::size_t>> token_ends(const Tokenizer& tokenizer,
                                                   std::string_view text,
                                                   const std::vector<int32_t>& tokens) {
  std::vector<std::size_t> ends;
  ends.reserve(tokens.size());
  std::string_view rest = text;
  for (const int32_t token : tokens) {
    const std::string bytes = tokenizer.decode(token);
    std::string_view own = bytes;
    if (!rest.starts_with(own) && own.starts_with(' ')) own.remove_prefix(1);
    while (!rest.starts_with(own) && (rest.starts_with(' ') || rest.starts_with('\n')))
      rest.remove_prefix(1);
    if (!rest.starts_with(own)) return std::nullopt;
    rest.remove_prefix(own.size());
    ends.push_back(text.size() - rest.size());
  }
  return ends;
}

Conversation normalized(Conversation conversation) {
  for (ChatMessage& message : conversation.messages) message.content = nfc(message.content);
  return conversation;
}

std::vector<ChatMessage> first_of(const Conversation& conversation, std::size_t count) {
  const auto first = conversation.messages.begin();
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

bool calls_tools(const ChatMessage& message) {
  return message.other.find(R"("tool_calls":)") != std::string::npos;
}

/// Whether a conversation with a call shows its result. A template that refuses this one may write
/// others: encode() reports what it refuses.
bool writes_results(const ChatTemplate& chat) {
  const std::string call =
      R"({"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]})";
  try {
    const auto text =
        chat.render({{"user", "?"}, {kAssistantRole, "", call}, {"tool", kPlaceholder}}, false)
            .text;
    return text.find(kPlaceholder) != std::string::npos;
  } catch (const UserError&) {
    return true;
  }
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

std::size_t occurrences(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size()))
    ++count;
  return count;
}

}  // namespace

ChatEncoder::ChatEncoder(const ChatTemplate& chat, const Tokenizer& tokenizer)
    : chat_(chat), tokenizer_(tokenizer), writes_results_(writes_results(chat)) {
  find_end_of_turn();
}

// The first special token after an answer.
void ChatEncoder::find_end_of_turn() {
  const std::string answer = kPlaceholder;
  const std::string text = chat_.render({{"user", "?"}, {kAssistantRole, answer}}, false).text;
  const std::size_t at = text.find(answer);
  if (at == std::string::npos) {
    throw UserError(
        "the chat template writes no assistant's turn; use the template of a model that answers");
  }
  for (const int32_t token : tokenizer_.encode(text.substr(at + answer.size()))) {
    end_text_ = tokenizer_.decode(token);
    if (end_text_.starts_with(' ')) end_text_.erase(0, 1);  // SentencePiece's
    if (tokenizer_.token_of(end_text_) != token) continue;
    end_of_turn_ = token;
    return;
  }
  throw UserError(
      "the chat template ends an assistant's turn without a special token of the tokenizer, so "
      "that "
      "an answer would not end; add one such as <|im_end|> to both");
}

// Left out by the template, they would be missing from what is learned without a word.
void ChatEncoder::check_tools(const Conversation& conversation) const {
  if (!conversation.tools.empty() && !chat_.names("tools")) {
    throw UserError(
        "has 'tools', which the chat template does not write; describe them in a system message, "
        "or use the template of a model that calls tools");
  }
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    const ChatMessage& message = conversation.messages[i];
    if (calls_tools(message) && !chat_.names("tool_calls")) {
      throw UserError(fmt::format(
          "message {} has 'tool_calls', which the chat template does not write; write the call "
          "into 'content', or use the template of a model that calls tools",
          i + 1));
    }
    if (message.role == "tool" && !writes_results_) {
      throw UserError(fmt::format(
          "message {} has the role tool, which the chat template does not write; give it the role "
          "user, or use the template of a model that calls tools",
          i + 1));
    }
  }
}

// The text in front of an answer is the beginning of the whole text, but for what only asks for an
// answer: some templates write that differently once there is one.
std::size_t ChatEncoder::answer_begin(const Conversation& conversation, std::size_t count,
                                      const std::string& whole) const {
  auto before = first_of(conversation, count);
  const std::string prompt = prompt_text(before, conversation.tools);
  if (whole.starts_with(prompt)) return prompt.size();
  const std::size_t without_asking = chat_.render(before, false, conversation.tools).text.size();
  before.push_back({kAssistantRole, kPlaceholder});
  const std::string other = chat_.render(before, false, conversation.tools).text;
  const std::size_t begin = common_prefix(prompt, other);
  if (begin >= without_asking && whole.starts_with(prompt.substr(0, begin))) return begin;
  throw UserError(
      fmt::format("the chat template changes what precedes message {} once that is there; {}",
                  count + 1, kFix));
}

TextSpan ChatEncoder::answer_after(const Conversation& conversation, std::size_t count,
                                   const std::string& whole) const {
  const ChatMessage& answer = conversation.messages[count];
  const std::size_t begin = answer_begin(conversation, count, whole);
  std::size_t limit = whole.size();
  if (calls_tools(answer)) {  // some templates end calls in another way than answers
    const auto upto = chat_.render(first_of(conversation, count + 1), false, conversation.tools);
    limit = common_prefix(whole, upto.text);
  }
  std::size_t end = begin;
  for (std::size_t left = occurrences(answer.content, end_text_) + 1; left > 0; --left) {
    end = whole.find(end_text_, end);
    if (end == std::string::npos || end + end_text_.size() > limit) {
      throw UserError(fmt::format("the chat template writes message {} without {} at its end; {}",
                                  count + 1, end_text_, kFix));
    }
    end += end_text_.size();
  }
  return {begin, end};
}

std::string ChatEncoder::prompt_text(const std::vector<ChatMessage>& before,
                                     const std::string& tools) const {
  try {
    return chat_.render(before, /*answer_next=*/true, tools).text;
  } catch (const UserError& error) {
    if (!before.empty()) throw;
    throw UserError(fmt::format(
        "begins with the assistant, which the chat template does not allow ({}); put a message of "
        "the user in front",
        error.what()));
  }
}

std::vector<TextSpan> ChatEncoder::answers(const Conversation& conversation,
                                           const RenderedChat& whole) const {
  const auto& messages = conversation.messages;
  // The text in front of each answer is rendered anew: the square of their number.
  constexpr std::size_t kMostMessages = 2000;
  if (messages.size() > kMostMessages && !chat_.marks_generated()) {
    throw UserError(fmt::format(
        "has {} messages, more than {}; divide it into several conversations, or enclose answers "
        "in {{% generation %}}",
        messages.size(), kMostMessages));
  }
  std::vector<TextSpan> spans;
  std::size_t answer = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != kAssistantRole) continue;
    const std::size_t number = answer++;
    if (!conversation.trained[i]) continue;
    if (!chat_.marks_generated()) {
      spans.push_back(answer_after(conversation, i, whole.text));
    } else if (number < whole.generated.size()) {
      spans.push_back(whole.generated[number]);
    }
  }
  if (!chat_.marks_generated() || answer == whole.generated.size()) return spans;
  throw UserError(fmt::format(
      "the chat template encloses {} answers in {{% generation %}}, and the conversation has {}; "
      "enclose each, or set data_config.loss_on=all",
      whole.generated.size(), answer));
}

void ChatEncoder::check_answers() const {
  if (chat_.marks_generated()) return;
  const Conversation probe{{{"user", "\uE0F1"},
                            {kAssistantRole, "\uE0F2"},
                            {"user", "\uE0F3"},
                            {kAssistantRole, "\uE0F4"}},
                           {false, true, false, true},
                           ""};
  std::string text;
  std::vector<TextSpan> spans;
  try {
    const RenderedChat whole = chat_.render(probe.messages, /*answer_next=*/false);
    spans = answers(probe, whole);
    text = whole.text;
  } catch (const UserError&) {
    return;  // encode() reports it for a conversation that this happens to
  }
  for (std::size_t i = 0; i < probe.messages.size(); ++i) {
    for (std::size_t number = 0; number < spans.size(); ++number) {
      const TextSpan& span = spans[number];
      const std::string_view learned(text.data() + span.begin, span.end - span.begin);
      const bool is_in = learned.find(probe.messages[i].content) != std::string_view::npos;
      if (is_in == (i == 2 * number + 1)) continue;
      throw UserError(fmt::format(
          "what the chat template writes from where it asks for an answer up to {} is not that "
          "answer alone; {}",
          end_text_, kFix));
    }
  }
}

void ChatEncoder::mark_targets(const Conversation& conversation, const RenderedChat& whole,
                               EncodedChat& chat) const {
  const auto ends = token_ends(tokenizer_, whole.text, chat.tokens);
  if (!ends) {
    const auto composed = normalized(conversation);
    if (composed.messages != conversation.messages)
      return mark_targets(composed, chat_.render(composed.messages, false, composed.tools), chat);
    throw UserError(
        "the tokenizer changes this text, so that its answers cannot be found among the tokens; "
        "use one that has all characters, or set data_config.loss_on=all");
  }
  std::size_t begin = 0;
  const auto spans = answers(conversation, whole);
  auto span = spans.begin();
  for (std::size_t i = 0; i < ends->size(); ++i) {
    const std::size_t end = (*ends)[i];
    while (span != spans.end() && span->end <= begin) ++span;
    chat.is_target[i] = span != spans.end() && end > span->begin && end > begin;
    begin = end;
  }
}

EncodedChat ChatEncoder::encode(const Conversation& conversation, LossOn loss_on) const {
  check_tools(conversation);
  const RenderedChat whole =
      chat_.render(conversation.messages, /*answer_next=*/false, conversation.tools);
  EncodedChat chat;
  chat.tokens = tokenizer_.encode(whole.text);
  chat.is_target.assign(chat.tokens.size(), loss_on == LossOn::kAll);
  if (loss_on == LossOn::kAssistant) mark_targets(conversation, whole, chat);
  return chat;
}

std::vector<int32_t> ChatEncoder::encode_prompt(const std::vector<ChatMessage>& messages) const {
  return tokenizer_.encode(chat_.render(messages, /*answer_next=*/true).text);
}

std::vector<EncodedChat> encode_all(std::span<const Conversation> conversations,
                                    const ChatEncoder& encoder, LossOn loss_on, LeftOut& left_out) {
  constexpr int64_t kFewForAThread = 64;
  const int64_t threads = std::min<int64_t>(std::thread::hardware_concurrency(),
                                            std::ssize(conversations) / kFewForAThread);
  auto next = conversations.begin();
  Prefetcher<const Conversation*, EncodedChat> encoded(
      threads > 1 ? threads : 0, 4 * threads,
      [&] { return next == conversations.end() ? nullptr : &*next++; },
      [&](const Conversation* each) {
        return each == nullptr ? EncodedChat() : encoder.encode(*each, loss_on);
      });
  std::vector<EncodedChat> chats;
  chats.reserve(conversations.size());
  for (const Conversation& each : conversations) {
    try {
      chats.push_back(encoded.next());
    } catch (const std::exception& error) {
      left_out.found(fmt::format("{}: {}", each.place, error.what()));
    }
  }
  return chats;
}

}  // namespace ddp::train
