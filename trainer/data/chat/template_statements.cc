// Statements of a run.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "trainer/data/chat/template_run.h"

namespace ddp::train {
namespace {

using Value = TemplateValue;
using NodeKind = TemplateNode::Kind;

}  // namespace

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
    if (flow != Flow::kBreak) continue;
    if (list.list() != nullptr && list.list()->is_generator() &&
        (node.children[2] || i + 1 < shared->size()))
      list.list()->taken = Value::List::kUnknown;
    break;
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
