// Folders of runs and sweeps.
#pragma once

#include <string>

namespace ddp::train {

/// "~/x" -> home, then against the current directory.
std::string absolute_path(const std::string& path);

/// Writes a text to a file of that folder, which is created; `key` is what messages name. Throws
/// UserError when that cannot be.
void publish_text(const std::string& folder, const std::string& name, const std::string& text,
                  const std::string& key);

}  // namespace ddp::train
