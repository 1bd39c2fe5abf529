#include "launcher/cli/option_help.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/skip.h"

#include "launcher/cli/option_table.h"
#include "tests/launcher/ddp_run.h"
#include "tests/support/exit_code_table.h"

namespace ddp::launch {
namespace {

using Catch::Contains;
using test::has_program;
using test::kDdpRun;
using test::lines_of;
using test::run_to_end;
using test::TempFolder;
using Lines = std::vector<std::string>;

test::Finished run_command(Lines argv) { return run_to_end({.argv = std::move(argv)}); }

// What bash offers after these words; the last one is being typed. As readline splits them: at `=`.
Lines bash_offers(const Lines& words, const std::string& folder) {
  const TempFolder tmp;
  std::string list = "COMP_WORDS=(ddp-run";
  for (const auto& word : words) list += " '" + word + "'";
  const std::string script = "source " + tmp.write("completion", completion_script("bash")) +
                             "\ncd " + folder + "\n" + list +
                             ")\nCOMP_CWORD=" + std::to_string(words.size()) +
                             "\n_ddp_run\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
  auto offered = lines_of(run_command({"bash", "--norc", "-c", script}).out);
  std::erase(offered, "");
  std::sort(offered.begin(), offered.end());
  return offered;
}

// Versions of cxxopts break lines differently.
Lines words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST_CASE("the help text is the golden one") {
  std::ifstream file(DDP_TEST_DATA "/cli/help.golden");
  std::stringstream golden;
  golden << file.rdbuf();
  CHECK(words_of(help_text()) == words_of(golden.str()));
}

TEST_CASE("the short help fits on a screen and leads to the long one") {
  const auto lines = lines_of(short_help_text());
  CHECK(lines.size() <= 40);
  CHECK(std::all_of(lines.begin(), lines.end(), [](const auto& l) { return l.size() <= 100; }));
  CHECK_THAT(short_help_text(), Contains("--nproc-per-node") && Contains("--nnodes") &&
                                    Contains("--rdzv-backend") && Contains("--rdzv-endpoint") &&
                                    Contains("--rdzv-conf") && Contains("ddp-run --help"));
  CHECK(run_command({kDdpRun, "-h"}).out == short_help_text());
  CHECK(run_command({kDdpRun, "--help"}).out == help_text());
  CHECK(run_command({kDdpRun, "-mh"}).out == short_help_text());
}

TEST_CASE(
    "help that cannot be written is a failure, help that nobody reads on is none to speak of") {
  const auto full = run_command({"/bin/sh", "-c", "exec " + kDdpRun + " --help >/dev/full"});
  CHECK(full.exit == 1);
  CHECK(full.err == "error: cannot write to standard output: No space left on device\n");
  const auto closed =
      run_command({"/bin/sh", "-c", "{ sleep 0; } | :; " + kDdpRun + " --help | head -n1"});
  CHECK(closed.err.empty());
}

TEST_CASE("help and READMEs of ddp-run have the exit codes of the contract, in its words") {
  const std::string root = DDP_TEST_DATA "/../../";
  auto both = test::exit_code_table(root + "README.md", "exit code");
  auto own = test::exit_code_table(root + "launcher/README.md", "code");
  const std::string help = help_text();
  for (const ExitCodeMeaning& meaning : kExitCodeMeanings) {
    const std::string name = test::exit_code_name(meaning.code);
    const std::string words = meaning.of_ddp_run ? meaning.of_ddp_run : "";
    INFO(name);
    REQUIRE(both[name].size() == 2);
    CHECK(both[name][1] == words);
    both.erase(name);
    if (words.empty()) continue;
    REQUIRE(own[name].size() == 1);
    CHECK_THAT(own[name][0], Catch::StartsWith(words));
    own.erase(name);
    CHECK_THAT(help, Contains("\n  " + name + std::string(7 - name.size(), ' ') + words + "\n"));
  }
  CHECK(both.size() == 1);  // "other"
  CHECK(own.size() == 1);
}

TEST_CASE("the help has at most 52 options, and none that is only accepted") {
  const auto lines = lines_of(help_text());
  const auto rows = std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
    return line.starts_with("      --") || (line.starts_with("  -") && line[4] == ',');
  });
  CHECK(rows == static_cast<long>(listed_options().size()));
  CHECK(rows <= 52);
  for (const OptionSpec& option : option_table().subspan(listed_options().size())) {
    const std::string name = "--" + std::string(option.name);
    CHECK_THAT(help_text(), !Contains("\n      " + name));
    CHECK_THAT(completion_script("bash"), !Contains(name));
    CHECK_THAT(completion_script("zsh"), !Contains("'*" + name));
    CHECK_THAT(completion_script("fish"), !Contains(" -l " + std::string(option.name)));
  }
}

TEST_CASE("completion in every shell knows every option") {
  for (const OptionSpec& option : listed_options()) {
    const std::string name = option.name;
    CHECK_THAT(completion_script("bash"), Contains("--" + name));
    CHECK_THAT(completion_script("zsh"), Contains("'*--" + name));
    CHECK_THAT(completion_script("fish"), Contains(" -l " + name + " "));
  }
  CHECK(completion_script("tcsh").empty());
  CHECK(run_command({kDdpRun, "--print-completion", "bash"}).out == completion_script("bash"));
  CHECK_THAT(run_command({kDdpRun, "--print-completion=tcsh"}).err,
             Contains("must be one of bash, zsh, fish"));
}

TEST_CASE("bash completes options, their values, and files") {
  const TempFolder folder;
  folder.write("logs/x", "");
  folder.write("train.py", "");
  const auto offers = [&](const Lines& words) { return bash_offers(words, folder.path()); };
  CHECK(offers({"--max-r"}) == Lines{"--max-restarts"});
  CHECK(offers({"--max_r"}) == Lines{"--max_restarts"});
  CHECK(offers({"--standalone", "--rdzv-b"}) == Lines{"--rdzv-backend"});
  CHECK(offers({"--rdzv-backend", ""}) == Lines{"c10d", "etcd", "static"});
  CHECK(offers({"--rdzv_backend", "=", "c"}) == Lines{"c10d"});
  CHECK(offers({"--restart-policy", ""}) == Lines{"never", "on-crash", "on-failure"});
  CHECK(offers({"--rdzv-backend", "="}) == Lines{"c10d", "etcd", "static"});
  CHECK(offers({"--rdzv-backend", "=", "c10d", "--rdzv-c"}) == Lines{"--rdzv-conf"});
  CHECK(offers({"--log-dir", "l"}) == Lines{"logs"});
  CHECK(offers({"-t", "3", "--tee", "3", "--rdzv-c"}) == Lines{"--rdzv-conf"});
  // Nothing of ours: bash itself then offers files.
  CHECK(offers({"tr"}).empty());
  CHECK(offers({"train.py", "--max-r"}).empty());
  CHECK(offers({"-m", "package", "--max-r"}).empty());
  CHECK(offers({"--", "--max-r"}).empty());
}

TEST_CASE("the scripts for zsh and fish are valid where these shells are to be found") {
  const TempFolder tmp;
  for (const std::string shell : {"zsh", "fish"}) {
    const auto script = tmp.write(shell, completion_script(shell));
    if (!has_program(shell)) {
      test::say_skipped(shell + " is not installed");
      continue;
    }
    const auto checked = run_command({shell, "-n", script});
    CHECK(checked.exit == 0);
    CHECK(checked.err.empty());
  }
}

TEST_CASE("the manual page has every option and nothing that groff complains about") {
  const std::string page = man_page();
  CHECK_THAT(page, Contains(".SH SYNOPSIS") && Contains(".SH EXIT STATUS"));
  CHECK_THAT(page, Contains("\\fB\\-\\-nproc\\-per\\-node\\fR=\\fIN|gpu|cpu|auto\\fR\n"));
  CHECK_THAT(page, Contains("PET_"));
  const TempFolder tmp;
  const auto file = tmp.write("ddp-run.1", page);
  if (!has_program("groff")) {
    test::say_skipped("groff is not installed");
    return;
  }
  const auto groff = run_command({"groff", "-man", "-ww", "-Tascii", file});
  CHECK(groff.exit == 0);
  CHECK(groff.err.empty());
  CHECK_THAT(groff.out, Contains("nproc-per-node"));
}

}  // namespace
}  // namespace ddp::launch
