#pragma once

#include <string>

namespace ddp::train {

/// This machine's name for messages and file names; "localhost" if it has none.
std::string host_name();

}  // namespace ddp::train
