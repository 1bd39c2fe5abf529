// The functions, filters, tests, methods and operators that transformers' templates can use. Each
// throws UserError, without a place, for anything unsupported or impossible.
#pragma once

#include <string>

#include "trainer/data/chat/template_run.h"

namespace ddp::train {

TemplateValue called_function(TemplateRun& run, const std::string& name,
                              const TemplateArguments& arguments);
TemplateValue called_method(TemplateRun& run, const TemplateValue& self, const std::string& name,
                            const TemplateArguments& arguments);
TemplateValue filtered(TemplateRun& run, const std::string& filter, const TemplateValue& value,
                       const TemplateArguments& arguments);
bool passes_test(TemplateRun& run, const std::string& test, const TemplateValue& value,
                 const TemplateArguments& arguments);
/// value.name; undefined if there is none.
TemplateValue attribute(TemplateRun& run, const TemplateValue& value, const std::string& name);
/// value[key]; undefined if there is none.
TemplateValue element(TemplateRun& run, const TemplateValue& value, const TemplateValue& key);
TemplateValue sliced(TemplateRun& run, const TemplateValue& whole, const TemplateValue& first,
                     const TemplateValue& last, const TemplateValue& step);
TemplateValue binary(TemplateRun& run, const std::string& sign, const TemplateValue& left,
                     const TemplateValue& right);

// Methods of texts, as Python's str has them.
std::string capitalized_text(const std::string& text);
/// As Python's str.title(): titled_text() is Jinja's filter.
std::string words_capitalized(const std::string& text);
/// As Jinja's title, not as str.title().
std::string titled_text(const std::string& text);
std::string stripped(const std::string& text, const TemplateValue& characters, bool left,
                     bool right);
/// `count` below 0: all.
std::string replaced(TemplateRun& run, const std::string& text, const std::string& from,
                     const std::string& to, int64_t count);
/// `margin` before each line that is not the first, or not empty, unless these are wanted.
std::string indented(TemplateRun& run, const std::string& text, const std::string& margin,
                     bool first, bool empty);
/// As strftime, of local time.
std::string time_text(std::time_t now, const std::string& format);

/// Returns the arguments in the order of the parameters; undefined if missing. Throws UserError for
/// too many arguments or unknown names.
TemplateValues bound(const std::string& callee, const TemplateArguments& arguments,
                     std::initializer_list<std::string_view> parameters);
const std::string& text_of(const TemplateValue& value);
/// `value` as an integer, `otherwise` if undefined or None.
int64_t integer_of(const TemplateValue& value, int64_t otherwise);

}  // namespace ddp::train
