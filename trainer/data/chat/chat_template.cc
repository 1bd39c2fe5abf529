#include "trainer/data/chat/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "trainer/data/chat/template_node.h"
#include "trainer/data/chat/template_run.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using Kind = TemplateToken::Kind;
using OrderedJson = nlohmann::ordered_json;

bool has_generation(const std::vector<TemplateToken>& tokens) {
  return std::adjacent_find(tokens.begin(), tokens.end(),
                            [](const TemplateToken& tag, const TemplateToken& name) {
                              return tag.kind == Kind::kStatement && name.kind == Kind::kName &&
                                     name.text == "generation";
                            }) != tokens.end();
}

std::set<std::string> names_in(const std::vector<TemplateToken>& tokens) {
  std::set<std::string> names;
  for (const TemplateToken& token : tokens) {
    if (token.kind == Kind::kName || token.kind == Kind::kString) names.insert(token.text);
  }
  return names;
}

/// What `work` throws names the template's place in front of "line 3: ...".
template <typename Work>
auto at_place(const std::string& place, const Work& work) {
  try {
    return work();
  } catch (const UserError& error) {
    const std::string what = error.what();
    if (place.empty()) throw;
    if (!place.ends_with(".jinja")) throw UserError(place + ": the chat template: " + what);
    throw UserError(fmt::format("{}:{}", place, what.substr(std::string("line ").size())));
  }
}

/// Older names of a message's reasoning are aliases, as in transformers.
OrderedJson with_reasoning(const OrderedJson& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null()) continue;
    OrderedJson aliased = OrderedJson::object({{"thinking", *found}});
    aliased.update(message);
    aliased["reasoning_content"] = *found;
    return aliased;
  }
  return message;
}

OrderedJson message_json(const ChatMessage& message) {
  OrderedJson json = OrderedJson::object({{"role", message.role}, {"content", message.content}});
  if (message.other.empty()) return json;
  json.update(OrderedJson::parse(message.other));
  return with_reasoning(json);
}

}  // namespace

struct ChatTemplate::Program {
  TemplateNodePtr root;
  std::set<std::string> names;
};

ChatTemplate::ChatTemplate(const std::string& source, std::map<std::string, std::string> special,
                           std::string place, std::time_t now)
    : source_(source),
      special_(std::move(special)),
      place_(std::move(place)),
      now_(now == 0 ? std::time(nullptr) : now) {
  program_ = at_place(place_, [&] {
    auto tokens = template_tokens(source);
    marks_generated_ = has_generation(tokens);
    std::set<std::string> names = names_in(tokens);
    return std::make_unique<const Program>(
        Program{parse_template(std::move(tokens)), std::move(names)});
  });
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;

bool ChatTemplate::names(const std::string& word) const { return program_->names.contains(word); }

RenderedChat ChatTemplate::render(const std::vector<ChatMessage>& messages, bool answer_next,
                                  const std::string& tools) const {
  TemplateRun::Scope globals;
  for (const auto& [name, text] : special_) globals[name] = text;
  TemplateValues list;
  for (const ChatMessage& message : messages)
    list.push_back(TemplateValue::from_json(message_json(message)));
  globals["messages"] = TemplateValue::list(std::move(list));
  globals["add_generation_prompt"] = answer_next;
  globals["tools"] = tools.empty() ? nullptr : TemplateValue::from_json(OrderedJson::parse(tools));
  globals["documents"] = nullptr;
  return at_place(place_, [&] {
    TemplateRun run(std::move(globals), now_);
    run.run(*program_->root);
    return RenderedChat{std::move(run.output), std::move(run.generated)};
  });
}

}  // namespace ddp::train
