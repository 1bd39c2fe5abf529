#include "trainer/data/chat/template_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/data/chat/template_builtins.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using Value = TemplateValue;
using NodeKind = TemplateNode::Kind;

constexpr int64_t kMostWork = int64_t{256} << 20U;
constexpr std::size_t kStepWork = 16;
constexpr int kDeepestCall = 500;

}  // namespace

TemplateRun::TemplateRun(Scope globals, std::time_t now) : now_(now), left_(kMostWork) {
  for (const char* name : {"raise_exception", "strftime_now", "namespace", "dict", "range"})
    globals.emplace(name, Value::function({name, nullptr}));
  scopes_.push_back(std::move(globals));
}

void TemplateRun::run(const TemplateNode& program) {
  try {
    execute(program);
  } catch (const UserError& error) {
    refuse_template(line_, error.what());
  }
}

void TemplateRun::spend(std::size_t bytes) {
  left_ -= static_cast<int64_t>(std::min<std::size_t>(bytes, kMostWork));
  if (left_ < 0) refuse_value("takes more work or memory than any chat's template does");
}

Value TemplateRun::lookup(const std::string& name) const {
  auto running = macros_.rbegin();
  for (std::size_t at = scopes_.size(); at > 0;) {
    const Scope& scope = scopes_[--at];
    if (const auto found = scope.find(name); found != scope.end()) return found->second;
    while (running != macros_.rend() && running->first > at) ++running;
    if (running != macros_.rend() && running->first == at) at = running->second;
  }
  return {};
}

Value TemplateRun::evaluate(const TemplateNode& node) {
  if (++depth_ > kDeepestCall) refuse_value("calls are nested too deeply");
  spend(kStepWork);
  const int before = std::exchange(line_, node.line);
  Value value = value_of(node);
  line_ = before;  // not after an error: it names the line
  --depth_;
  return value;
}

TemplateValues TemplateRun::operands(const TemplateNode& node) {
  TemplateValues values;
  for (const auto& child : node.children) values.push_back(evaluate(*child));
  return values;
}

TemplateArguments TemplateRun::arguments_of(const TemplateNode& node) {
  TemplateArguments arguments;
  const std::size_t named = node.children.size() - node.names.size();
  for (std::size_t i = 1; i < node.children.size(); ++i) {
    const TemplateNode& child = *node.children[i];
    if (child.kind == NodeKind::kSpread) {
      const Value list = evaluate(*child.children[0]);
      spend(list.is_text() ? list.text()->size() * kBytesOfCharacter : list.weight());
      for (Value& each : items_of(list)) arguments.positional.push_back(std::move(each));
      continue;
    }
    Value value = evaluate(child);
    spend(value.is_text() ? value.weight() : 0);
    if (i < named)
      arguments.positional.push_back(std::move(value));
    else
      arguments.named.emplace_back(node.names[i - named], std::move(value));
  }
  return arguments;
}

Value TemplateRun::value_of(const TemplateNode& node) {
  const auto child = [&](std::size_t i) { return evaluate(*node.children[i]); };
  switch (node.kind) {
    case NodeKind::kConstant:
      return node.value;
    case NodeKind::kName:
      return lookup(node.text);
    case NodeKind::kList:
    case NodeKind::kTuple: {
      Value list = Value::list(operands(node), node.kind == NodeKind::kTuple);
      spend(list.weight());
      return list;
    }
    case NodeKind::kDict: {
      std::vector<std::pair<Value, Value>> items;
      for (std::size_t i = 0; i + 1 < node.children.size(); i += 2) {
        Value key = child(i);
        items.emplace_back(std::move(key), child(i + 1));
      }
      Value dict = Value::dict(std::move(items));
      spend(dict.weight());
      return dict;
    }
    case NodeKind::kAttribute:
    case NodeKind::kItem: {
      const Value object = child(0);
      if (object.is_undefined()) {
        const TemplateNode& name = *node.children[0];
        refuse_value(name.text.empty() ? "an undefined value has no elements"
                                       : fmt::format("'{:.80}' is undefined", name.text));
      }
      return node.kind == NodeKind::kAttribute ? attribute(*this, object, node.text)
                                               : element(*this, object, child(1));
    }
    case NodeKind::kSlice:
      return slice(node);
    case NodeKind::kCall: {
      const Value function = child(0);
      if (function.is_undefined())
        refuse_value(
            fmt::format("'{:.80}' is not defined or not supported", node.children[0]->text));
      return call(function, arguments_of(node));
    }
    case NodeKind::kFilter: {
      const Value value = child(0);
      return filtered(*this, node.text, value, arguments_of(node));
    }
    case NodeKind::kTest: {
      const Value value = child(0);
      return passes_test(*this, node.text, value, arguments_of(node));
    }
    case NodeKind::kNot:
      return !child(0).is_true();
    case NodeKind::kNegative:
      return binary(*this, "-", 0, child(0));
    case NodeKind::kPositive:
      return binary(*this, "+", 0, child(0));
    case NodeKind::kBinary: {
      const Value left = child(0);
      return binary(*this, node.text, left, child(1));
    }
    case NodeKind::kAnd: {
      Value left = child(0);
      return left.is_true() ? child(1) : left;
    }
    case NodeKind::kOr: {
      Value left = child(0);
      return left.is_true() ? left : child(1);
    }
    case NodeKind::kCompare:
      return compare(node);
    case NodeKind::kChoice:
      if (child(1).is_true()) return child(0);
      return node.children[2] ? child(2) : Value();
    default:
      refuse_value("is no expression");
  }
}

/// a < b < c is a < b and b < c, with b evaluated once.
Value TemplateRun::compare(const TemplateNode& node) {
  Value left = evaluate(*node.children[0]);
  for (std::size_t i = 0; i < node.names.size(); ++i) {
    Value right = evaluate(*node.children[i + 1]);
    spend(std::min(left.weight(), right.weight()));
    const std::string& sign = node.names[i];
    bool holds = false;
    if (sign.ends_with("in")) {
      spend(right.list() != nullptr || right.is_text() ? right.weight() : 0);
      holds = contains(right, left) == (sign == "in");
    } else if (sign == "==" || sign == "!=") {
      holds = equal(left, right) == (sign == "==");
    } else {
      const int order = compared(left, right);
      holds = sign == "<"    ? order < 0
              : sign == ">"  ? order > 0
              : sign == "<=" ? order <= 0
                             : order >= 0;
    }
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value TemplateRun::slice(const TemplateNode& node) {
  const Value whole = evaluate(*node.children[0]);
  Value bounds[3] = {nullptr, nullptr, nullptr};
  for (std::size_t i = 0; i < 3; ++i) {
    if (node.children[i + 1]) bounds[i] = evaluate(*node.children[i + 1]);
  }
  return sliced(*this, whole, bounds[0], bounds[1], bounds[2]);
}

Value TemplateRun::call(const Value& value, const TemplateArguments& arguments) {
  const auto* function = value.function();
  if (function == nullptr)
    refuse_value(fmt::format("'{}' object is not callable", value.type_name()));
  if (function->macro != nullptr) return macro(*function, arguments);
  return function->self ? called_method(*this, *function->self, function->name, arguments)
                        : called_function(*this, function->name, arguments);
}

Value TemplateRun::macro_value(const TemplateNode& node) const {
  return Value::function({node.text, nullptr, &node, scopes_.size()});
}

Value TemplateRun::macro(const Value::Function& function, const TemplateArguments& arguments) {
  const TemplateNode& node = *function.macro;
  if (arguments.positional.size() > node.names.size()) {
    refuse_value(
        fmt::format("macro '{}' takes not more than {} argument(s)", node.text, node.names.size()));
  }
  Scope own;
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    own[node.names[i]] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const bool known = name == "caller" ||
                       std::find(node.names.begin(), node.names.end(), name) != node.names.end();
    if (!known || !own.emplace(name, value).second)
      refuse_value(fmt::format("macro '{}' takes no keyword argument '{:.80}'", node.text, name));
  }
  const std::size_t visible = std::min(function.scopes, scopes_.size());
  macros_.emplace_back(scopes_.size(), visible);
  scopes_.push_back(std::move(own));
  const std::size_t defaults = node.children.size() - 1;
  for (std::size_t i = 0; i < node.names.size(); ++i) {
    if (scopes_.back().contains(node.names[i])) continue;
    const std::size_t required = node.names.size() - defaults;
    scopes_.back()[node.names[i]] =
        i < required ? Value() : evaluate(*node.children[1 + i - required]);
  }
  Value text = captured(*node.children[0]);
  scopes_.pop_back();
  macros_.pop_back();
  return text;
}

std::string TemplateRun::captured(const TemplateNode& node) {
  std::string before = std::exchange(output, {});
  const std::size_t outside = outside_;
  if (outside_ == 0) outside_ = before.size() + 1;
  scopes_.emplace_back();
  execute(node);
  scopes_.pop_back();
  outside_ = outside;
  std::swap(before, output);
  spend(before.size());
  return before;
}

Value TemplateRun::filtered_block(const TemplateNode& body, const TemplateNode& filters) {
  std::string text = captured(body);
  scopes_.push_back({{kBlockText, std::move(text)}});
  Value value = evaluate(filters);
  scopes_.pop_back();
  return value;
}

TemplateRun::Flow TemplateRun::execute(const TemplateNode& node) {
  if (++depth_ > kDeepestCall) refuse_value("calls are nested too deeply");
  spend(kStepWork);
  const int before = std::exchange(line_, node.line);
  const Flow flow = flow_of(node);
  line_ = before;
  --depth_;
  return flow;
}

TemplateRun::Flow TemplateRun::flow_of(const TemplateNode& node) {
  switch (node.kind) {
    case NodeKind::kBody:
      for (const auto& child : node.children) {
        if (const Flow flow = execute(*child); flow != Flow::kNext) return flow;
      }
      return Flow::kNext;
    case NodeKind::kText:
      spend(node.text.size());
      output += node.text;
      return Flow::kNext;
    case NodeKind::kOutput: {
      const Value value = evaluate(*node.children[0]);
      spend(value.weight());
      output += printed(value);
      return Flow::kNext;
    }
    case NodeKind::kIf:
      return condition(node);
    case NodeKind::kFor:
      return loop(node);
    case NodeKind::kSet:
      assign(*node.children[0], evaluate(*node.children[1]));
      return Flow::kNext;
    case NodeKind::kSetBlock:
      assign(*node.children[0], filtered_block(*node.children[1], *node.children[2]));
      return Flow::kNext;
    case NodeKind::kFilterBlock: {
      const Value value = filtered_block(*node.children[0], *node.children[1]);
      output += printed(value);
      return Flow::kNext;
    }
    case NodeKind::kMacro:
      scopes_.back()[node.text] = macro_value(node);
      return Flow::kNext;
    case NodeKind::kCallBlock:
      call_block(node);
      return Flow::kNext;
    case NodeKind::kWith:
      return with(node);
    case NodeKind::kGeneration:
      generation(node);
      return Flow::kNext;
    case NodeKind::kBreak:
      return Flow::kBreak;
    case NodeKind::kContinue:
      return Flow::kContinue;
    default:
      refuse_value(fmt::format("'{}' is not supported", node.text));
  }
}

TemplateRun::Flow TemplateRun::condition(const TemplateNode& node) {
  for (std::size_t i = 0; i + 1 < node.children.size(); i += 2) {
    if (evaluate(*node.children[i]).is_true()) return execute(*node.children[i + 1]);
  }
  return node.children.size() % 2 == 1 ? execute(*node.children.back()) : Flow::kNext;
}

TemplateRun::Flow TemplateRun::loop(const TemplateNode& node) {
  const TemplateNode& target = *node.children[0];
  if (!node.text.empty()) refuse_value("'recursive' is not supported");
  const Value list = evaluate(*node.children[1]);
  if (list.is_text()) spend(list.text()->size() * kBytesOfCharacter);
  auto items = items_of(list);
  spend(items.size() * sizeof(Value));
  if (node.children[2]) {
    std::erase_if(items, [&](const Value& item) {
      scopes_.emplace_back();
      assign(target, item);
      const bool kept = evaluate(*node.children[2]).is_true();
      scopes_.pop_back();
      return !kept;
    });
  }
  if (items.empty()) {
    if (!node.children[4]) return Flow::kNext;
    scopes_.emplace_back();
    const Flow flow = execute(*node.children[4]);
    scopes_.pop_back();
    return flow;
  }
  int depth = 1;
  for (const Value& item : items) depth = std::max(depth, item.depth() + 1);
  const auto shared = std::make_shared<const TemplateValues>(std::move(items));
  for (std::size_t i = 0; i < shared->size(); ++i) {
    spend(kStepWork);
    scopes_.emplace_back();
    scopes_.back()["loop"] = std::make_shared<const Value::Loop>(Value::Loop{shared, i, depth});
    assign(target, (*shared)[i]);
    const Flow flow = execute(*node.children[3]);
    scopes_.pop_back();
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

TemplateRun::Flow TemplateRun::with(const TemplateNode& node) {
  TemplateValues values;
  for (std::size_t i = 2; i < node.children.size(); i += 2)
    values.push_back(evaluate(*node.children[i]));
  scopes_.emplace_back();
  for (std::size_t i = 0; i < values.size(); ++i) assign(*node.children[1 + 2 * i], values[i]);
  const Flow flow = execute(*node.children[0]);
  scopes_.pop_back();
  return flow;
}

void TemplateRun::assign(const TemplateNode& target, Value value) {
  if (target.kind == NodeKind::kName) {
    scopes_.back()[target.text] = std::move(value);
  } else if (target.kind == NodeKind::kAttribute) {
    const Value object = lookup(target.children[0]->text);
    auto* space = object.name_space();
    if (space == nullptr)
      refuse_value(fmt::format("'{:.80}' is not a namespace", target.children[0]->text));
    if (value.depth() >= kDeepestTemplateValue / 2)
      refuse_value("a namespace within a namespace is not supported");
    space->members[target.text] = std::move(value);
  } else {
    auto items = items_of(value);
    if (items.size() != target.children.size()) {
      refuse_value(fmt::format("{} names for {} values", target.children.size(), items.size()));
    }
    for (std::size_t i = 0; i < items.size(); ++i) assign(*target.children[i], std::move(items[i]));
  }
}

void TemplateRun::call_block(const TemplateNode& node) {
  const TemplateNode& call_node = *node.children[0];
  const Value function = evaluate(*call_node.children[0]);
  auto arguments = arguments_of(call_node);
  arguments.named.emplace_back("caller", macro_value(*node.children[1]));
  output += printed(call(function, arguments));
}

/// Variables set in it end with it, as in transformers.
void TemplateRun::generation(const TemplateNode& node) {
  const std::size_t begin = outside_ == 0 ? output.size() : outside_ - 1;
  std::string text = captured(*node.children[0]);
  output += text;
  generated.push_back({begin, begin + text.size()});
}

}  // namespace ddp::train
