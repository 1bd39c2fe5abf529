#include "trainer/data/chat/template_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/data/chat/template_builtins.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using Value = TemplateValue;
using NodeKind = TemplateNode::Kind;

constexpr int64_t kMostWork = int64_t{256} << 20U;

}  // namespace

TemplateRun::TemplateRun(Scope globals, std::time_t now) : now_(now), left_(kMostWork) {
  for (const char* name : {"raise_exception", "strftime_now", "namespace", "dict", "range",
                           "cycler", "joiner", "lipsum"})
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
  if (name == "self") refuse_value("'self' is not supported");  // Jinja's, of blocks
  return {};
}

Value TemplateRun::evaluate(const TemplateNode& node) {
  if (++depth_ > kDeepestCall) refuse_value("calls are nested too deeply");
  spend(kStepWork);
  const int before = std::exchange(line_, node.line);
  Value value = value_of(node);
  line_ = before;  // not after an error: that contains the line
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
    case NodeKind::kPositive: {
      const bool negative = node.kind == NodeKind::kNegative;
      const Value value = child(0);
      if (value.is_float()) return negative ? -value.number() : value.number();
      return binary(*this, negative ? "-" : "+", 0, value);
    }
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

}  // namespace ddp::train
