// A parsed chat template.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/data/chat/template_tokens.h"
#include "trainer/data/chat/template_values.h"

namespace ddp::train {

/// An expression or a statement. The comment on a kind lists its `children`; [x] may be null.
struct TemplateNode {
  enum class Kind {
    // Expressions
    kConstant,
    kName,
    kList,  // items
    kTuple,
    kDict,       // key, value, key, ...
    kAttribute,  // object
    kItem,       // object, key
    kSlice,      // object, [first], [last], [step]
    kCall,       // function, arguments
    kFilter,     // value, arguments
    kTest,       // value, arguments
    kNot,
    kNegative,
    kPositive,
    kBinary,  // left, right
    kAnd,
    kOr,
    kCompare,  // operands, with the signs between them as names
    kSpread,   // list: its items are arguments
    kChoice,   // then, condition, [else]
    // Statements
    kBody,
    kText,
    kOutput,
    kIf,           // condition, body, condition, body, ..., [else]
    kFor,          // target, list, [condition], body, [else]
    kSet,          // target, value
    kSetBlock,     // target, body, value of the body
    kMacro,        // body, defaults of the last parameters
    kCallBlock,    // call, macro that is its caller
    kFilterBlock,  // body, value of the body
    kWith,         // body, target, value, target, value, ...
    kGeneration,   // body
    kBreak,
    kContinue,
    kRefused,  // not supported: only an error if it is reached
  };
  Kind kind;
  int line = 1;
  std::string text{};                ///< A name, a sign, or text.
  TemplateValue value{};             ///< For kConstant.
  std::vector<std::string> names{};  ///< Names of parameters, or of the last arguments.
  std::vector<std::unique_ptr<TemplateNode>> children{};
  int depth = 1;
};

using TemplateNodePtr = std::unique_ptr<TemplateNode>;

/// The name of a block's value for its filters.
inline constexpr const char* kBlockText = "block text";

/// A whole template. Throws UserError: "line 3: ...".
TemplateNodePtr parse_template(std::vector<TemplateToken> tokens);

}  // namespace ddp::train
