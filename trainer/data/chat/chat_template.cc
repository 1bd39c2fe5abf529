#include "trainer/data/chat/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "trainer/data/chat/template_program.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using Kind = TemplateToken::Kind;
using Value = TemplateValue;

constexpr std::size_t kMostOutput = std::size_t{64} << 20U;
constexpr int64_t kMostSteps = 10'000'000;

struct Branch {
  TemplateExpression condition;  // empty: else
  TemplateStatement body;
};

class StatementParser {
 public:
  explicit StatementParser(TemplateCursor& cursor) : cursor_(cursor) {}

  /// Up to a statement that begins with one of `ends`, whose name was read then.
  TemplateStatement block(const std::vector<std::string>& ends, std::string& end) {
    constexpr int kDeepest = 60;
    if (++depth_ > kDeepest) cursor_.refuse("is nested too deeply");
    std::vector<TemplateStatement> steps;
    for (;;) {
      const TemplateToken token = cursor_.next();
      if (token.kind == Kind::kData) {
        steps.push_back([text = token.text](TemplateRun& run) { run.write(text); });
      } else if (token.kind == Kind::kOutput) {
        steps.push_back([value = parse_template_expression(cursor_)](TemplateRun& run) {
          run.write(printed(value(run)));
        });
        cursor_.expect_end();
      } else if (token.kind == Kind::kStatement) {
        end = cursor_.expect_name();
        if (std::find(ends.begin(), ends.end(), end) != ends.end()) break;
        steps.push_back(statement(end, token.line));
      } else {
        end.clear();
        if (!ends.empty())
          refuse_template(token.line, fmt::format("'{}' is missing", ends.front()));
        break;
      }
    }
    --depth_;
    return [steps](TemplateRun& run) {
      for (const TemplateStatement& step : steps) step(run);
    };
  }

 private:
  TemplateStatement statement(const std::string& keyword, int line) {
    if (keyword == "if") return condition();
    if (keyword == "for") return loop();
    if (keyword == "set") return assignment();
    if (keyword == "generation") return generation();
    refuse_template(line, fmt::format("'{}' is not supported", keyword));
  }

  TemplateStatement condition() {
    std::vector<Branch> branches;
    std::string end = "if";
    while (end != "endif") {
      Branch branch;
      const bool last = end == "else";
      if (!last) branch.condition = parse_template_expression(cursor_);
      cursor_.expect_end();
      branch.body = last ? block({"endif"}, end) : block({"endif", "elif", "else"}, end);
      branches.push_back(std::move(branch));
    }
    cursor_.expect_end();
    return [branches](TemplateRun& run) {
      for (const Branch& branch : branches) {
        if (!branch.condition || is_true(branch.condition(run))) return branch.body(run);
      }
    };
  }

  struct Loop {
    std::vector<std::string> names;
    TemplateExpression list;
    TemplateExpression condition;
    TemplateStatement body;
    TemplateStatement otherwise;
    int line = 0;

    void bind(TemplateRun& run, const Value& item) const {
      if (names.size() == 1) return run.set(names[0], item);
      if (!item.is_array() || item.size() != names.size())
        refuse_template(line, "a loop's names do not fit its items");
      for (std::size_t i = 0; i < names.size(); ++i) run.set(names[i], item[i]);
    }

    std::vector<Value> items(TemplateRun& run) const {
      std::vector<Value> kept;
      const Value all = list(run);
      if (all.is_discarded()) return kept;
      if (!all.is_structured()) refuse_template(line, "a loop is over lists and mappings only");
      if (all.is_object()) {
        for (const auto& [key, value] : all.items()) kept.emplace_back(key);
        return kept;
      }
      run.push();
      for (const Value& item : all) {
        if (condition) bind(run, item);
        if (!condition || is_true(condition(run))) kept.push_back(item);
      }
      run.pop();
      return kept;
    }

    void run_on(TemplateRun& run) const {
      const auto kept = items(run);
      if (kept.empty() && otherwise) return otherwise(run);
      for (std::size_t i = 0; i < kept.size(); ++i) {
        run.push();
        bind(run, kept[i]);
        run.set("loop", {{"index0", i},
                         {"index", i + 1},
                         {"first", i == 0},
                         {"last", i + 1 == kept.size()},
                         {"length", kept.size()},
                         {"previtem", i == 0 ? undefined_value() : kept[i - 1]},
                         {"nextitem", i + 1 == kept.size() ? undefined_value() : kept[i + 1]}});
        body(run);
        run.pop();
      }
    }
  };

  TemplateStatement loop() {
    Loop loop;
    loop.line = cursor_.peek().line;
    do {
      loop.names.push_back(cursor_.expect_name());
    } while (cursor_.take_sign(","));
    if (!cursor_.take_name("in")) cursor_.refuse("'in' is expected");
    loop.list = parse_template_expression_without_if(cursor_);
    if (cursor_.take_name("if")) loop.condition = parse_template_expression(cursor_);
    cursor_.expect_end();
    std::string end;
    loop.body = block({"endfor", "else"}, end);
    if (end == "else") {
      cursor_.expect_end();
      loop.otherwise = block({"endfor"}, end);
    }
    cursor_.expect_end();
    return [loop](TemplateRun& run) { loop.run_on(run); };
  }

  TemplateStatement assignment() {
    const std::string name = cursor_.expect_name();
    const std::string member = cursor_.take_sign(".") ? cursor_.expect_name() : "";
    const int line = cursor_.peek().line;
    TemplateExpression value;
    if (cursor_.take_sign("=")) {
      value = parse_template_expression(cursor_);
      cursor_.expect_end();
    } else {
      cursor_.expect_end();
      std::string end;
      value = [body = block({"endset"}, end)](TemplateRun& run) {
        std::string before;
        before.swap(run.output);
        body(run);
        before.swap(run.output);
        return Value(before);
      };
      cursor_.expect_end();
    }
    if (member.empty()) return [name, value](TemplateRun& run) { run.set(name, value(run)); };
    return [=](TemplateRun& run) {
      Value* object = run.find(name);
      if (object == nullptr || !object->is_object())
        refuse_template(line, fmt::format("'{}' is not a namespace", name));
      Value now = value(run);
      (*run.find(name))[member] = std::move(now);
    };
  }

  /// Variables set in it end with it, as in transformers.
  TemplateStatement generation() {
    cursor_.expect_end();
    std::string end;
    TemplateStatement body = block({"endgeneration"}, end);
    cursor_.expect_end();
    return [body = std::move(body)](TemplateRun& run) {
      const std::size_t begin = run.output.size();
      run.push();
      body(run);
      run.pop();
      run.generated.push_back({begin, run.output.size()});
    };
  }

  TemplateCursor& cursor_;
  int depth_ = 0;
};

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

}  // namespace

TemplateValue* TemplateRun::find(const std::string& name) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto found = scope->find(name); found != scope->end()) return &found->second;
  }
  return nullptr;
}

void TemplateRun::set(const std::string& name, TemplateValue value) {
  count_step();
  scopes_.back()[name] = std::move(value);
}

void TemplateRun::count_step() {
  if (++steps_ > kMostSteps) throw UserError("the chat template does not end");
}

void TemplateRun::write(const std::string& text) {
  count_step();
  output += text;
  if (output.size() > kMostOutput) throw UserError("the chat template writes too much");
}

void TemplateCursor::expect_sign(std::string_view sign) {
  if (!take_sign(sign)) refuse(fmt::format("'{}' is expected", sign));
}

std::string TemplateCursor::expect_name() {
  if (peek().kind != Kind::kName) refuse("a name is expected");
  return next().text;
}

void TemplateCursor::expect_end() {
  if (peek().kind != Kind::kEnd) refuse(fmt::format("unexpected '{}'", peek().text));
  next();
}

TemplateStatement parse_template(TemplateCursor& cursor) {
  std::string end;
  return StatementParser(cursor).block({}, end);
}

struct ChatTemplate::Program {
  TemplateStatement run;
  std::set<std::string> names;
};

ChatTemplate::ChatTemplate(const std::string& source, std::map<std::string, std::string> special)
    : source_(source), special_(std::move(special)) {
  auto tokens = template_tokens(source);
  marks_generated_ = has_generation(tokens);
  std::set<std::string> names = names_in(tokens);
  TemplateCursor cursor(std::move(tokens));
  program_ = std::make_unique<const Program>(Program{parse_template(cursor), std::move(names)});
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;

bool ChatTemplate::names(const std::string& word) const { return program_->names.contains(word); }

RenderedChat ChatTemplate::render(const std::vector<ChatMessage>& messages, bool answer_next,
                                  const std::string& tools) const {
  TemplateRun::Variables globals;
  for (const auto& [name, text] : special_) globals[name] = text;
  Value list = Value::array();
  for (const ChatMessage& message : messages) {
    list.push_back(Value::object({{"role", message.role}, {"content", message.content}}));
    if (!message.other.empty()) list.back().update(Value::parse(message.other));
  }
  globals["messages"] = std::move(list);
  globals["add_generation_prompt"] = answer_next;
  globals["tools"] = tools.empty() ? Value(nullptr) : Value::parse(tools);
  globals["documents"] = nullptr;
  TemplateRun run(std::move(globals));
  program_->run(run);
  return {std::move(run.output), std::move(run.generated)};
}

}  // namespace ddp::train
