// trainer generate --chat: a conversation, answers as they are produced.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "trainer/app/generation.h"
#include "trainer/app/standard_output.h"
#include "trainer/data/chat/chat_encoding.h"
#include "trainer/data/chat/chat_template_file.h"
#include "trainer/interop/base_settings.h"
#include "trainer/model/causal_model.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/utf8.h"
#include "trainer/runtime/with_key.h"
#include "trainer/task/causal_data.h"
#include "trainer/task/generate/generate.h"
#include "trainer/tokenizer/text_stream.h"

namespace ddp::train {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

/// While it lives, Ctrl-C only sets `interrupted`: an answer ends early, not the program.
class InterruptibleAnswer {
 public:
  explicit InterruptibleAnswer(bool wanted) : wanted_(wanted) {
    interrupted = false;
    if (!wanted_) return;
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = true; };
    ::sigaction(SIGINT, &action, &before_);
  }
  ~InterruptibleAnswer() {
    if (wanted_) ::sigaction(SIGINT, &before_, nullptr);
  }
  InterruptibleAnswer(const InterruptibleAnswer&) = delete;
  InterruptibleAnswer& operator=(const InterruptibleAnswer&) = delete;

 private:
  bool wanted_;
  struct sigaction before_ {};
};

void note(const std::string& text) {
  std::fflush(stdout);
  fmt::print(stderr, "chat: {}\n", text);
}

ChatTemplate template_of(const ModelBundle& model) {
  const auto state = model.metadata.find(kChatTemplate);
  if (state == model.metadata.end()) {
    throw UserError(fmt::format(
        "--chat: {} has no chat template; give a model trained with data_config.format=chat, or "
        "the folder of one that has chat_template.jinja",
        model.path));
  }
  ChatTemplateText text = chat_template_from_state(state->second);
  text.place = "--chat: " + model.path;
  return parse_chat_template(text);
}

ChatEncoder encoder_of(const ChatTemplate& chat, const ModelBundle& model) {
  return with_key("--chat: " + model.path, [&] { return ChatEncoder(chat, *model.tokenizer); });
}

enum class AnswerEnd { kTurn, kLength, kContext, kInterrupt };

struct Answer {
  std::string text;
  int64_t tokens = 0;
  AnswerEnd end = AnswerEnd::kTurn;
};

/// What was said, as much of it as the model's context holds.
class Conversing {
 public:
  Conversing(const ModelBundle& model, const GenerateArgs& options)
      : options_(options),
        model_(model.as<CausalModel>()),
        tokenizer_(*model.tokenizer),
        template_(template_of(model)),
        encoder_(encoder_of(template_, model)),
        ends_(stop_tokens(model.metadata, tokenizer_)),
        generator_(model_, options.sampling) {
    reset();
  }

  const GraphUse& graph_use() const { return generator_.graph_use(); }

  void reset() {
    messages_.clear();
    if (!options_.system.empty()) messages_.push_back({"system", options_.system});
  }

  /// `show` gets the answer in pieces. After an error the message counts as not said.
  template <typename Show>
  Answer answer(const std::string& message, const Show& show) {
    for (const auto& [name, text] :
         {std::pair("--system", &options_.system), std::pair("this message", &message)}) {
      const std::size_t bad = first_bad_byte(*text);
      if (bad != std::string::npos)
        throw UserError(fmt::format("{} {}", name, not_utf8(*text, bad)));
    }
    const auto before = messages_;
    messages_.push_back({"user", message});
    try {
      generator_.set_text(fitting_prompt());
    } catch (const UserError&) {
      messages_ = before;
      throw;
    }
    Answer answer = generate(show);
    messages_.push_back({kAssistantRole, answer.text});
    return answer;
  }

 private:
  /// A quarter of the context is for the answer, if it may be that long.
  int64_t prompt_limit() const {
    const int64_t context = model_.block_size();
    return context - std::min(options_.sampling.max_new_tokens, context / 4);
  }

  std::vector<int32_t> fitting_prompt() {
    std::size_t forgotten = 0;
    auto tokens = encoder_.encode_prompt(messages_);
    while (std::ssize(tokens) > prompt_limit()) {
      const std::size_t oldest = drop_oldest_turn();
      if (oldest == 0) {
        throw UserError(fmt::format(
            "this message makes {} tokens, and the model's context of {} leaves {} for it; shorten "
            "it",
            tokens.size(), model_.block_size(), prompt_limit()));
      }
      forgotten += oldest;
      tokens = encoder_.encode_prompt(messages_);
    }
    if (forgotten > 0) {
      note(fmt::format("the context of {} tokens is full; the oldest {} messages are forgotten",
                       model_.block_size(), forgotten));
    }
    return tokens;
  }

  /// The oldest question and what answered it. Returns how many messages, 0 if the last question
  /// alone is left.
  std::size_t drop_oldest_turn() {
    const auto first = messages_.begin() + (messages_.front().role == "system" ? 1 : 0);
    const auto next = std::find_if(first + 1, messages_.end(), [](const ChatMessage& message) {
      return message.role == "user";
    });
    if (next == messages_.end()) return 0;
    const auto count = static_cast<std::size_t>(next - first);
    messages_.erase(first, next);
    return count;
  }

  template <typename Show>
  Answer generate(const Show& show) {
    Answer answer;
    TextStream stream(options_.stops);
    const auto add = [&](const std::string& text) {
      answer.text += text;
      show(text);
    };
    std::optional<AnswerEnd> end = reason_to_break_off(0);
    while (!end) {
      const int32_t token = generator_.next();
      ++answer.tokens;
      if (!ends_turn(token)) add(stream.add(text_of(token, answer.tokens == 1)));
      end = ends_turn(token) || stream.stopped() ? AnswerEnd::kTurn
                                                 : reason_to_break_off(answer.tokens);
    }
    answer.end = *end;
    add(stream.finish());
    return answer;
  }

  std::optional<AnswerEnd> reason_to_break_off(int64_t tokens) const {
    if (interrupted) return AnswerEnd::kInterrupt;
    if (tokens >= options_.sampling.max_new_tokens) return AnswerEnd::kLength;
    if (generator_.is_full()) return AnswerEnd::kContext;
    return std::nullopt;
  }

  bool ends_turn(int32_t token) const {
    return token == encoder_.end_of_turn() || std::ranges::count(ends_, token) > 0;
  }

  /// The first token's without the space that SentencePiece puts in front of words.
  std::string text_of(int32_t token, bool first) const {
    return first ? tokenizer_.decode(std::span(&token, 1)) : tokenizer_.decode(token);
  }

  const GenerateArgs& options_;
  CausalModel& model_;
  const Tokenizer& tokenizer_;
  ChatTemplate template_;
  ChatEncoder encoder_;
  std::vector<int32_t> ends_;
  TurnGenerator generator_;
  std::vector<ChatMessage> messages_;
};

/// Standard input and output, at a terminal or not.
class Dialogue {
 public:
  Dialogue(const ModelBundle& model, const GenerateArgs& options)
      : options_(options),
        conversing_(model, options),
        typed_(::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0) {}

  void run() {
    if (!options_.prompt.empty()) return say(options_.prompt);
    if (typed_) note("/reset forgets what was said, /quit or Ctrl-D ends; Ctrl-C ends an answer");
    while (const auto line = read_line()) {
      if (*line == "/quit") break;
      if (*line == "/reset") {
        conversing_.reset();
      } else if (line->find_first_not_of(" \t") != std::string::npos) {
        say_and_stay(*line);
      }
    }
    if (typed_) print("\n");
    if (unanswered_ > 0) {
      throw UserError(
          fmt::format("--chat: {} of the messages could not be answered; the lines above name why",
                      unanswered_));
    }
  }

  int64_t tokens() const { return tokens_; }
  Clock::duration time() const { return time_; }
  const GraphUse& graph_use() const { return conversing_.graph_use(); }

 private:
  std::optional<std::string> read_line() {
    if (typed_) print("> ");
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }

  void say_and_stay(const std::string& message) {
    try {
      say(message);
    } catch (const UserError& error) {
      note(error.what());
      if (typed_) return;
      ++unanswered_;  // later ones still get a reply
      if (options_.json) print(json_output({{"role", kAssistantRole}, {"error", error.what()}}));
    }
  }

  void say(const std::string& message) {
    const InterruptibleAnswer answering(typed_);
    const auto begin = Clock::now();
    const Answer answer = conversing_.answer(message, [&](const std::string& text) {
      if (!options_.json && !text.empty()) print(text);
    });
    time_ += Clock::now() - begin;
    tokens_ += answer.tokens;
    print(options_.json ? as_json(answer) : "\n");
    explain(answer.end);
  }

  static std::string as_json(const Answer& answer) {
    const bool whole = answer.end == AnswerEnd::kTurn;
    return json_output({{"role", kAssistantRole},
                        {"content", answer.text},
                        {"tokens", answer.tokens},
                        {"finish_reason", whole ? "stop" : "length"}});
  }

  void explain(AnswerEnd end) const {
    if (end == AnswerEnd::kLength)
      note(fmt::format("the answer was cut at --max_new_tokens {}",
                       options_.sampling.max_new_tokens));
    if (end == AnswerEnd::kContext) note("the answer was cut: the model's context is full");
  }

  const GenerateArgs& options_;
  Conversing conversing_;
  bool typed_;
  int64_t tokens_ = 0;
  int64_t unanswered_ = 0;
  Clock::duration time_{};
};

}  // namespace

void chat(const ModelBundle& model, const GenerateArgs& options, torch::Device device) {
  Dialogue dialogue(model, options);
  dialogue.run();
  report_speed(dialogue.tokens(), dialogue.time(), device, dialogue.graph_use());
}

}  // namespace ddp::train
