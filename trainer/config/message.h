// Messages are one line, whatever the values in them hold.
#pragma once

#include <string>
#include <string_view>

namespace ddp::train {

/// Control characters become escapes: a line break is written \n.
std::string one_line(std::string_view text);

/// A value as a message shows it: one line, cut after 100 bytes.
std::string shown(std::string_view value);

}  // namespace ddp::train
