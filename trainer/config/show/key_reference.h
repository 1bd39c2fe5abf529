// The key reference, generated from the list of fields.
#pragma once

#include <string>

namespace ddp::train {

/// Returns one Markdown table per section, one row per key: name, type, range, default, unit,
/// meaning; for docs/config.md.
std::string config_reference_markdown();

/// The page of `trainer --help-config`: every key with type, range, default and meaning.
std::string config_reference_text();

/// A JSON schema of the YAML files, for editors: configs/schema.json.
std::string config_schema_json();

}  // namespace ddp::train
