// Names of models on the Hugging Face Hub, which this trainer does not download.
#pragma once

#include <string>

namespace ddp::train {

/// For a path that does not exist and looks like owner/name or name: a message with the command to
/// fetch it. Else "".
std::string how_to_fetch_model(const std::string& path);

}  // namespace ddp::train
