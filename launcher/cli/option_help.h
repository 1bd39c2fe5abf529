// Help texts, manual page and shell completion, generated from option_table.
#pragma once

#include <string>
#include <string_view>

namespace ddp::launch {

/// --help: every option.
std::string help_text();
/// -h: the most common options; fits on 40 lines.
std::string short_help_text();
/// The manual page ddp-run(1), for groff's man macros. Written when ddp-run is built.
std::string man_page();
/// Completion for "bash", "zsh" or "fish": options, values with choices, then files. Empty for any
/// other shell.
std::string completion_script(std::string_view shell);

}  // namespace ddp::launch
