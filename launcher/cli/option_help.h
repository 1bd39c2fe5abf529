// Help texts and manual page, generated from option_table.
#pragma once

#include <string>

namespace ddp::launch {

/// --help: every option.
std::string help_text();
/// -h: the most common options; fits on 40 lines.
std::string short_help_text();
/// --print-man: the manual page ddp-run(1), for groff's man macros.
std::string man_page();

}  // namespace ddp::launch
