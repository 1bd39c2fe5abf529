#include "launcher/cluster/ssh_command.h"

namespace ddp::launch {
namespace {

// $1: folder, $2: ddp-run, then settings up to `--`, then ddp-run's arguments. One line, and no
// backslash, quote or exclamation mark that a login shell could take for its own.
constexpr const char* kRemoteScript =
    "cd -- \"$1\" 2>/dev/null || { echo \"error: there is no folder $1 on this host; start from "
    "one that all hosts have\" >&2; exit 1; }; "
    "d=$2; shift 2; "
    "while [ \"$1\" != -- ]; do export \"$1\"; shift; done; shift; "
    "[ -x \"$d\" ] && exec \"$d\" \"$@\"; "
    "command -v ddp-run >/dev/null && exec ddp-run \"$@\"; "
    "echo \"error: ddp-run is not installed on this host: neither at $d nor on PATH\" >&2; "
    "exit 127";

bool needs_no_quotes(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/.,:=@+-";
  return !word.empty() && word.front() != '=' &&
         word.find_first_not_of(kPlain) == std::string_view::npos;
}

}  // namespace

// Single quotes protect everything but themselves and, in fish, backslashes: both go outside.
std::string quoted_for_any_shell(std::string_view word) {
  if (needs_no_quotes(word)) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'' || c == '\\') {
      quoted.append("'\\").append(1, c).append("'");
    } else {
      quoted.push_back(c);
    }
  }
  quoted.push_back('\'');
  return quoted;
}

std::string remote_command_line(const RemoteCommand& command) {
  std::vector<std::string> words{"/bin/sh", "-c",           kRemoteScript,
                                 "ddp-run", command.folder, command.ddp_run};
  words.insert(words.end(), command.settings.begin(), command.settings.end());
  words.emplace_back("--");
  words.insert(words.end(), command.arguments.begin(), command.arguments.end());
  std::string line = "exec";
  for (const auto& word : words) line.append(" ").append(quoted_for_any_shell(word));
  return line;
}

}  // namespace ddp::launch
