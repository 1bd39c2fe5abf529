#include "launcher/cli/option_help.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "launcher/cli/option_table.h"

namespace ddp::launch {
namespace {

// "N|gpu|cpu[,...]" -> gpu, cpu: lowercase words are literal choices.
std::vector<std::string> choices_of(const OptionSpec& option) {
  std::vector<std::string> choices;
  std::string rest = option.value ? option.value : "";
  if (rest.ends_with("[,...]")) rest.resize(rest.rfind('['));
  rest += '|';
  if (std::count(rest.begin(), rest.end(), '|') < 2) return choices;
  for (std::size_t bar; (bar = rest.find('|')) != std::string::npos; rest.erase(0, bar + 1)) {
    const bool literal = std::all_of(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(bar),
                                     [](char c) { return c >= '-' && (c < 'A' || c > 'Z'); });
    if (literal) choices.push_back(rest.substr(0, bar));
  }
  return choices;
}

bool takes_folder(const OptionSpec& option) {
  return option.value && std::string_view(option.value) == "FOLDER";
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (std::size_t at; (at = text.find(from)) != std::string_view::npos;) {
    out.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return out.append(text);
}

// "-m --module --no-python": the options that take a value, or the others.
std::string names_of(bool valued) {
  std::string names;
  for (const OptionSpec& option : listed_options()) {
    if ((option.value != nullptr) != valued) continue;
    if (!names.empty()) names += ' ';
    if (option.letter) names += fmt::format("-{} ", option.letter);
    names += fmt::format("--{}", option.name);
  }
  return names;
}

constexpr const char* kBash =
    R"(# bash completion for ddp-run, to be sourced
_ddp_run() {
  local cur=${COMP_WORDS[COMP_CWORD]} option= word i=1
  local flags="@FLAGS@"
  local valued="@VALUED@"
  local words="$flags $valued"
  COMPREPLY=()
  # The words before the cursor: options with their values (bash cuts at '='), then PROGRAM.
  while ((i < COMP_CWORD)); do
    word=${COMP_WORDS[i]}
    if [[ $word == --*_* ]]; then word=${word//_/-}; fi
    if [[ $word == -- || $word != -?* ]]; then return; fi
    ((i += 1))
    if [[ " $valued " != *" $word "* ]]; then continue; fi
    if [[ ${COMP_WORDS[i]} == '=' ]]; then
      ((i += 1))
      if ((i > COMP_CWORD)); then cur=; fi
    fi
    if ((i >= COMP_CWORD)); then option=$word; fi
    ((i += 1))
  done
  case $option in
    '') ;;
@CASES@    *) return ;;
  esac
  if [[ $cur != -* ]]; then return; fi
  if [[ $cur == --*_* ]]; then words=${words//-/_} words=${words//__/--}; fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o bashdefault -o default -F _ddp_run ddp-run
)";

std::string bash_script() {
  std::string cases;
  for (const OptionSpec& option : listed_options()) {
    const std::string pattern = option.letter
                                    ? fmt::format("-{} | --{}", option.letter, option.name)
                                    : fmt::format("--{}", option.name);
    if (const auto choices = choices_of(option); !choices.empty()) {
      cases += fmt::format("    {}) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return ;;\n",
                           pattern, fmt::join(choices, " "));
    } else if (takes_folder(option)) {
      cases += fmt::format("    {}) COMPREPLY=($(compgen -d -- \"$cur\")); return ;;\n", pattern);
    }
  }
  const std::string flags = replaced(kBash, "@FLAGS@", names_of(/*valued=*/false));
  return replaced(replaced(flags, "@VALUED@", names_of(/*valued=*/true)), "@CASES@", cases);
}

// Escapes text inside single quotes for _arguments, where brackets and colons are special.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == '[' || c == ']' || c == ':' || c == '\\') {
      out += fmt::format("\\{}", c);
    } else {
      out += c;
    }
  }
  return out;
}

std::string zsh_script() {
  std::string text =
      "#compdef ddp-run\n# zsh completion for ddp-run: put it into a folder of $fpath as _ddp-run\n"
      "_arguments -s -S -A '-*' \\\n";
  for (const OptionSpec& option : listed_options()) {
    std::string action;
    if (option.value) {
      const auto choices = choices_of(option);
      action = fmt::format(":{}:{}", zsh_text(option.value),
                           !choices.empty()       ? fmt::format("({})", fmt::join(choices, " "))
                           : takes_folder(option) ? "_files -/"
                                                  : "_files");
    }
    const auto line = [&](const std::string& name) {
      text += fmt::format("  '*{}[{}]{}' \\\n", name, zsh_text(option.help), action);
    };
    if (option.letter) line(fmt::format("-{}{}", option.letter, option.value ? "+" : ""));
    line(fmt::format("--{}{}", option.name, option.value ? "=" : ""));
  }
  return text + "  '1:program:_files' '*:argument:_files'\n";
}

constexpr const char* kFish =
    R"(# fish completion for ddp-run, to be sourced
function __ddp_run_before_program
  set -l words (commandline -opc)
  set -e words[1]
  set -l value no
  for word in $words
    if test $value = yes
      set value no
      continue
    end
    set -l plain (string replace -a -- _ - $word)
    switch $plain
      case @VALUED@
        set value yes
      case '-?*'
      case '*'
        return 1
    end
  end
  return 0
end
)";

std::string fish_script() {
  std::string lines;
  for (const OptionSpec& option : listed_options()) {
    const auto choices = choices_of(option);
    std::string line = "complete -c ddp-run -n __ddp_run_before_program";
    if (option.letter) line += fmt::format(" -s {}", option.letter);
    line += fmt::format(" -l {}", option.name);
    if (!choices.empty()) {
      line += fmt::format(" -x -a '{}'", fmt::join(choices, " "));
    } else if (takes_folder(option)) {
      line += " -x -a '(__fish_complete_directories)'";
    } else if (option.value) {
      line += " -r";
    }
    lines += line + " -d '" + replaced(replaced(option.help, "\\", "\\\\"), "'", "\\'") + "'\n";
  }
  return replaced(kFish, "@VALUED@", names_of(/*valued=*/true)) + lines;
}

}  // namespace

std::string completion_script(std::string_view shell) {
  if (shell == "bash") return bash_script();
  if (shell == "zsh") return zsh_script();
  if (shell == "fish") return fish_script();
  return "";
}

}  // namespace ddp::launch
