// Tests: what stands after "is".
#include <fmt/format.h>

#include <algorithm>

#include "trainer/data/chat/template_builtins.h"
#include "trainer/tokenizer/letter_case.h"

namespace ddp::train {
namespace {

using Value = TemplateValue;

bool is_cased(const std::string& text, bool upper) {
  return in_case(text, upper) == text && in_case(text, !upper) != text;
}

}  // namespace

bool passes_test(TemplateRun& run, const std::string& test, const Value& value,
                 const TemplateArguments& arguments) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), test) != names.end();
  };
  const auto& given = arguments.positional;
  if (given.empty()) {
    if (test == "defined") return !value.is_undefined();
    if (test == "undefined") return value.is_undefined();
    if (test == "none") return value.is_none();
    if (test == "string") return value.is_text();
    if (test == "mapping") return value.dict() != nullptr;
    if (test == "number") return value.is_number();
    if (test == "integer") return value.is_integer() && !value.is_bool();
    if (test == "float") return value.is_float();
    if (test == "boolean") return value.is_bool();
    if (test == "true") return value.is_bool() && value.is_true();
    if (test == "false") return value.is_bool() && !value.is_true();
    if (test == "callable") return value.function() != nullptr || value.is_undefined();
    if (test == "sequence" && value.list() != nullptr) return value.list()->has_elements();
    if (is_one_of({"iterable", "sequence"})) {
      return value.is_text() || value.list() != nullptr || value.dict() != nullptr ||
             value.is_undefined();
    }
    if (test == "odd") return !equal(binary(run, "%", value, 2), 0);
    if (test == "even") return equal(binary(run, "%", value, 2), 0);
    if (test == "upper" || test == "lower") return is_cased(printed(value), test == "upper");
  } else if (given.size() == 1) {
    run.spend(std::min(value.weight(), given[0].weight()));
    if (is_one_of({"eq", "==", "equalto"})) return equal(value, given[0]);
    if (is_one_of({"ne", "!="})) return !equal(value, given[0]);
    if (is_one_of({"lt", "<", "lessthan"})) return compared(value, given[0]) < 0;
    if (is_one_of({"gt", ">", "greaterthan"})) return compared(value, given[0]) > 0;
    if (is_one_of({"le", "<="})) return compared(value, given[0]) <= 0;
    if (is_one_of({"ge", ">="})) return compared(value, given[0]) >= 0;
    if (test == "divisibleby") return equal(binary(run, "%", value, given[0]), 0);
    if (test == "sameas")
      return value.type_name() == given[0].type_name() && equal(value, given[0]);
    if (test == "in") {
      run.spend(given[0].weight());
      return contains(given[0], value);
    }
  }
  refuse_value(fmt::format("the test '{:.80}' with {} arguments is not supported", test,
                           given.size() + arguments.named.size()));
}

}  // namespace ddp::train
