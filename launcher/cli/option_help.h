// Help texts and manual page, generated from option_table.
#pragma once

#include <string>

namespace ddp::launch {

/// --help: every option.
std::string help_text();
/// -h: the most common options; fits on 40 lines.
std::string short_help_text();
/// The manual page ddp-run(1), for groff's man macros. Written when ddp-run is built.
std::string man_page();

}  // namespace ddp::launch
