// One run of a chat template: variables, output and limits on its cost.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trainer/data/chat/chat_template.h"
#include "trainer/data/chat/template_node.h"
#include "trainer/data/chat/template_values.h"

namespace ddp::train {

/// Memory of a single character as a value.
inline constexpr std::size_t kBytesOfCharacter = 96;

struct TemplateArguments {
  TemplateValues positional;
  std::vector<std::pair<std::string, TemplateValue>> named;
};

/// Every method that evaluates throws UserError without a place; run() adds the line.
class TemplateRun {
 public:
  using Scope = std::unordered_map<std::string, TemplateValue>;
  /// `now`: the time that strftime_now() formats.
  TemplateRun(Scope globals, std::time_t now);

  void run(const TemplateNode& program);
  /// Counts work and memory, about a byte each. Throws UserError beyond what any chat needs.
  void spend(std::size_t bytes);
  TemplateValue call(const TemplateValue& function, const TemplateArguments& arguments);
  std::time_t now() const { return now_; }

  std::string output;
  std::vector<TextSpan> generated;  ///< Parts of the output.

 private:
  static constexpr std::size_t kStepWork = 16;
  static constexpr int kDeepestCall = 500;
  enum class Flow { kNext, kBreak, kContinue };

  TemplateValue evaluate(const TemplateNode& node);
  TemplateValue value_of(const TemplateNode& node);
  TemplateValue compare(const TemplateNode& node);
  TemplateValue slice(const TemplateNode& node);
  TemplateArguments arguments_of(const TemplateNode& node);
  TemplateValues operands(const TemplateNode& node);
  TemplateValue lookup(const std::string& name) const;

  Flow execute(const TemplateNode& node);
  Flow flow_of(const TemplateNode& node);
  Flow condition(const TemplateNode& node);
  Flow loop(const TemplateNode& node);
  Flow with(const TemplateNode& node);
  void assign(const TemplateNode& target, TemplateValue value);
  void call_block(const TemplateNode& node);
  void generation(const TemplateNode& node);
  TemplateValue macro(const TemplateValue::Function& function, const TemplateArguments& arguments);
  TemplateValue macro_value(const TemplateNode& node) const;
  /// Returns the output of `node`, run in its own scope.
  std::string captured(const TemplateNode& node);
  TemplateValue filtered_block(const TemplateNode& body, const TemplateNode& filters);

  std::vector<Scope> scopes_;  ///< The innermost last.
  /// For each running macro: its scope, and how many scopes it sees below that.
  std::vector<std::pair<std::size_t, std::size_t>> macros_;
  std::time_t now_;
  int64_t left_;
  int depth_ = 0;
  int line_ = 1;
  std::size_t outside_ = 0;  ///< Bytes of output that captures have put aside.
};

}  // namespace ddp::train
