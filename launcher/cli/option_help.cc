#include "launcher/cli/option_help.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "launcher/cli/declare_option.h"
#include "launcher/cli/option_table.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

using enum OptionGroup;

struct GroupTitle {
  OptionGroup group;
  const char* title;
};
constexpr GroupTitle kTitles[] = {
    {kWorkers, "Worker"},        {kRestarts, "Restart"},  {kProgram, "Program"},
    {kRendezvous, "Rendezvous"}, {kStopping, "Shutdown"}, {kLogs, "Log"},
    {kOther, "Other"},
};

// The options of -h.
constexpr std::array kCommon{
    "nproc-per-node", "nnodes",      "standalone",   "rdzv-backend", "rdzv-endpoint", "rdzv-id",
    "master-addr",    "master-port", "max-restarts", "module",       "no-python",     "tee",
    "redirects",      "log-dir",     "dry-run",      "help",         "version"};

constexpr const char* kUsage =
    R"(ddp-run: starts one process per rank and supervises the group, like torchrun.

Usage: ddp-run [options] PROGRAM [arguments of PROGRAM...]

PROGRAM is an executable (a path, a name on PATH, or a file next to ddp-run) or a Python script
(*.py; any file with --run-path). All arguments after PROGRAM are passed to it unchanged, except
that ${local_rank} is expanded; $${local_rank} yields the literal text.
Options are spelled with - or _, take values as --option VALUE or --option=VALUE, and may be
abbreviated to any unambiguous prefix, which must contain the first - or _ of a name that has one:
--nproc_, not --nproc (as with torchrun). An option that is not given is read from the environment:
PET_ and its name in capitals, e.g. PET_MAX_RESTARTS=3; flags are 1 or 0, e.g. PET_STANDALONE=1.

Examples:
  ddp-run --standalone --nproc_per_node=2 trainer --config configs/quickstart.yaml
  ddp-run --nproc-per-node=gpu --max-restarts=3 train.py --epochs 10
  ddp-run --nproc-per-node=4 -m package.train
  ddp-run --nproc-per-node=8 --tee=3 --log-dir=logs --fold-lines=100 \
          --log-line-prefix-template='${time} [${rank}]: ' train.py)";

constexpr const char* kShortUsage =
    R"(Usage: ddp-run [options] PROGRAM [arguments of PROGRAM...]

Starts one process per rank of PROGRAM (an executable or a Python script), stops or restarts the
group when one fails, and leaves no process behind.)";

std::string exit_code_name(int code) {
  return code == kExitSignalBase ? fmt::format("{}+N", code) : std::to_string(code);
}

std::string exit_codes() {
  std::string text = "\nExit codes:\n";
  for (const ExitCodeMeaning& meaning : kExitCodeMeanings) {
    if (!meaning.of_ddp_run) continue;
    text += fmt::format("  {:<7}{}\n", exit_code_name(meaning.code), meaning.of_ddp_run);
  }
  return text + "  other  exit code of the worker that failed first\n";
}

std::string right_of_names(const OptionSpec& option) {
  std::string text = option.help;
  if (option.value && *option.fallback) text += fmt::format(" [{}]", option.fallback);
  return text;
}

// Escapes text for groff: dashes stay dashes, a leading dot or quote is not a request.
std::string roff(std::string_view text) {
  std::string out;
  bool at_start = true;
  for (const char c : text) {
    if (at_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    at_start = c == '\n';
  }
  return out;
}

std::string man_option(const OptionSpec& option) {
  std::string names = option.letter ? fmt::format("\\fB\\-{}\\fR, ", option.letter) : "";
  names += fmt::format("\\fB\\-\\-{}\\fR", roff(option.name));
  if (option.value) names += fmt::format("=\\fI{}\\fR", roff(option.value));
  return fmt::format(".TP\n{}\n{}\n", names, roff(right_of_names(option)));
}

}  // namespace

std::string help_text() {
  cxxopts::Options help("ddp-run", kUsage);
  std::vector<std::string> titles;
  for (const auto& title : kTitles) {
    titles.emplace_back(title.title);
    for (const auto& option : option_table()) {
      if (option.group == title.group) declare_option(help, option, option.fallback, titles.back());
    }
  }
  return help.custom_help("").set_width(100).help(titles, false) + exit_codes();
}

std::string short_help_text() {
  cxxopts::Options help("ddp-run", kShortUsage);
  for (const char* name : kCommon) {
    const OptionSpec& option = *find_option(name);
    declare_option(help, option, option.fallback);
  }
  return help.custom_help("").set_width(100).help({}, false) +
         "\nFor all options, --rdzv-conf and --node-rank included, see ddp-run --help.\n";
}

std::string man_page() {
  const std::string_view usage = kUsage;
  const auto begin = usage.find("PROGRAM is");
  const auto examples = usage.find("Examples:\n");
  std::string text =
      ".TH DDP-RUN 1 \"\" \"ddp-run " DDP_VERSION
      "\" \"User Commands\"\n.SH NAME\n"
      "ddp\\-run \\- start one process per rank and supervise the group\n"
      ".SH SYNOPSIS\n.B ddp\\-run\n[\\fIoptions\\fR] \\fIPROGRAM\\fR [\\fIarguments\\fR...]\n"
      ".SH DESCRIPTION\n";
  text += roff(usage.substr(begin, examples - begin - 1)) + ".SH OPTIONS\n";
  for (const auto& title : kTitles) {
    text += fmt::format(".SS {} options\n", title.title);
    for (const auto& option : option_table()) {
      if (option.group == title.group) text += man_option(option);
    }
  }
  const std::string codes = exit_codes();
  text += ".SH EXIT STATUS\n.nf\n" + roff(codes.substr(codes.find(":\n") + 2)) + ".fi\n";
  text += ".SH EXAMPLES\n.nf\n" + roff(usage.substr(examples + 10)) + "\n.fi\n";
  return text + ".SH SEE ALSO\ntorchrun\n";
}

}  // namespace ddp::launch
