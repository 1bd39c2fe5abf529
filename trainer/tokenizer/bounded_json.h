// Parses JSON of foreign files within bounds.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ddp::train {

/// Throws UserError in one line: `name`, the position of the error and its reason. Rejects nesting
/// deeper than any tokenizer file's before parsing.
nlohmann::json parse_bounded_json(std::string_view text, const std::string& name);
/// The same with the members of objects in the order of the text.
nlohmann::ordered_json parse_bounded_ordered_json(std::string_view text, const std::string& name);

/// `text` for a message: one short line.
std::string quoted_part(std::string_view text);

}  // namespace ddp::train
