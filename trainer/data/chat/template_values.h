// Values of a chat template: what filters, tests and methods of Jinja make of them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::train {

/// As in Python; a `discarded` one is undefined.
using TemplateValue = nlohmann::ordered_json;

TemplateValue undefined_value();
bool is_true(const TemplateValue& value);
/// As Jinja prints it.
std::string printed(const TemplateValue& value);
/// As transformers' tojson: Python's json.dumps with ensure_ascii=False.
std::string json_text(const TemplateValue& value);

// Each throws UserError, without a place, for what is not supported or not possible.
TemplateValue filtered(const std::string& filter, const TemplateValue& value,
                       const std::vector<TemplateValue>& arguments);
bool passes_test(const std::string& test, const TemplateValue& value,
                 const std::vector<TemplateValue>& arguments);
TemplateValue called_method(const std::string& method, const TemplateValue& value,
                            const std::vector<TemplateValue>& arguments);
/// value.name or value[key]; undefined if there is none.
TemplateValue element(const TemplateValue& value, const TemplateValue& key);
TemplateValue slice(const TemplateValue& list, const TemplateValue& first,
                    const TemplateValue& last, const TemplateValue& step);
TemplateValue binary(const std::string& sign, const TemplateValue& left,
                     const TemplateValue& right);

}  // namespace ddp::train
