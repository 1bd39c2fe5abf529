// The key reference, generated from the list of fields.
#pragma once

#include <string>

namespace ddp::train {

/// One Markdown table a section, one row per key: name, type, range, default, unit, meaning.
/// docs/config.md holds it.
std::string config_reference_markdown();

}  // namespace ddp::train
