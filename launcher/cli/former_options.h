// Options that ddp-run no longer has, and what replaces them. Pure.
#pragma once

#include <string>
#include <string_view>

namespace ddp::launch {

/// `name`: with dashes, without the leading ones. "--hostfile is now --hosts=@FILE"; empty if there
/// was no such option.
std::string answer_to_former_option(std::string_view name);

}  // namespace ddp::launch
