// Folders of runs and sweeps.
#pragma once

#include <string>

namespace ddp::train {

/// "~/x" -> home, then against the current directory.
std::string absolute_path(const std::string& path);

/// Writes a text to a file of that folder, creating it; `key`: for messages. Throws UserError if
/// that fails.
void publish_text(const std::string& folder, const std::string& name, const std::string& text,
                  const std::string& key);

}  // namespace ddp::train
