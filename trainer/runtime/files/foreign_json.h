// JSON of foreign files: parsed within bounds, with errors in one plain line.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ddp::train {

inline constexpr int kDeepestJson = 100;

/// True if brackets outside strings nest deeper than `deepest`. The text need not be JSON.
bool nests_too_deeply(std::string_view json, int deepest = kDeepestJson);

/// True if objects have more than `most` members in all: ordered ones compare each with all before.
bool has_more_members(std::string_view json, std::size_t most);

/// "[json.exception.type_error.302] type must be number, but is string" becomes "a value is of type
/// string, not number"; any other text is returned unchanged.
std::string plain_json_error(std::string_view text);

/// Throws UserError in one line: `name`, the position of the error and its reason. Rejects nesting
/// deeper than any tokenizer file's before parsing.
nlohmann::json parse_bounded_json(std::string_view text, const std::string& name);
/// The same with the members of objects in the order of the text.
nlohmann::ordered_json parse_bounded_ordered_json(std::string_view text, const std::string& name);

/// `text` for a message: one short line.
std::string quoted_part(std::string_view text);

}  // namespace ddp::train
