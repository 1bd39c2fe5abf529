// The value of an override, what stands behind the "=": Hydra's grammar.
#pragma once

#include <string>

#include "trainer/config/override_functions.h"

namespace ddp::train {

/// An empty text is an empty string. Throws UserError that shows `override_text` and how to quote
/// what breaks the grammar.
OverrideValue parse_override_value(const std::string& text, const std::string& override_text);

}  // namespace ddp::train
