#include "launcher/plan/program.h"

#include <unistd.h>

#include "tests/support/catch.h"

#include "launcher/base/errors.h"
#include "tests/support/temp_folder.h"

namespace ddp::launch {
namespace {

using test::TempFolder;
using Args = std::vector<std::string>;

struct Complaint {
  int exit_code = 0;
  std::string text;
};

Complaint complaint(const LaunchConfig& config, const ProgramPlaces& places) {
  try {
    resolve_program(config, places);
  } catch (const LaunchError& error) {
    return {error.exit_code(), error.what()};
  }
  return {0, "(accepted)"};
}

LaunchConfig program(const std::string& name, Args args = {}) {
  LaunchConfig config;
  config.program = name;
  config.program_args = std::move(args);
  return config;
}

TEST_CASE("a program is looked for on PATH and then beside ddp-run") {
  const TempFolder folder;
  const auto on_path = folder.write("bin/both", "", true);
  const auto beside = folder.write("own/only", "", true);
  folder.write("own/both", "", true);
  folder.write("first/both", "");  // not executable: passed over
  const ProgramPlaces places{folder / "first:" + (folder / "bin"), folder / "own", ""};
  const Command command = resolve_program(program("both", {"a", "b"}), places);
  CHECK(command.executable == on_path);
  CHECK(command.argv == Args{"both", "a", "b"});
  CHECK(resolve_program(program("only"), places).executable == beside);
}

TEST_CASE("a program with a slash is that path") {
  const TempFolder folder;
  const auto path = folder.write("prog", "", true);
  CHECK(resolve_program(program(path), {}).executable == path);
}

TEST_CASE("Python scripts, folders and modules run under Python") {
  const TempFolder folder;
  const auto python = folder.write("bin/python3", "", true);
  const auto script = folder.write("train.py", "");
  folder.write("app/__main__.py", "");
  const ProgramPlaces places{folder / "bin", "", ""};
  CHECK(resolve_program(program(script, {"x"}), places).argv == Args{python, "-u", script, "x"});
  CHECK(resolve_program(program(folder / "app"), places).argv ==
        Args{python, "-u", folder / "app"});
  for (const char* name : {"train.pyc", "app.pyz"}) {
    const auto compiled = folder.write(name, "");
    CHECK(resolve_program(program(compiled), places).argv == Args{python, "-u", compiled});
  }
  LaunchConfig module = program("a.b");
  module.module = true;
  CHECK(resolve_program(module, places).argv == Args{python, "-u", "-m", "a.b"});
}

TEST_CASE("PYTHON_EXEC replaces python3") {
  const TempFolder folder;
  const auto python = folder.write("other/py", "", true);
  const auto script = folder.write("train.py", "");
  CHECK(resolve_program(program(script), {"", "", python}).executable == python);
}

TEST_CASE("a script is executed itself with --no-python") {
  const TempFolder folder;
  LaunchConfig config = program(folder.write("train.py", "", true));
  config.no_python = true;
  CHECK(resolve_program(config, {}).executable == config.program);
}

TEST_CASE("a program that cannot run is one line, 127 or 126") {
  const TempFolder folder;
  const ProgramPlaces places{folder / "bin", folder / "own", ""};
  const auto plain = folder.write("plain", "");
  CHECK(complaint(program("nosuch"), places).exit_code == 127);
  CHECK(complaint(program("nosuch"), places).text ==
        "program 'nosuch' was not found; it is neither on PATH nor next to ddp-run; give its path");
  CHECK(complaint(program("\u2013nproc_per_node=2"), places).text.find("typographic dash") !=
        std::string::npos);
  CHECK(complaint(program("OMP_NUM_THREADS=4"), places)
            .text.find("put variables before ddp-run: OMP_NUM_THREADS=4 ddp-run") !=
        std::string::npos);
  CHECK(complaint(program(folder / "nosuch"), places).exit_code == 127);
  CHECK(complaint(program(folder / "nosuch.py"), places).exit_code == 127);
  CHECK(complaint(program(plain), places).exit_code == 126);
  CHECK(complaint(program(plain), places).text.find("is not executable; run chmod +x") !=
        std::string::npos);
  CHECK(complaint(program(folder.path()), places).exit_code == 126);
  CHECK(complaint(program(folder.path()), places).text.find("is a directory") != std::string::npos);
  CHECK(complaint(program(folder.write("t.py", "")), places)
            .text.find("program 'python3' was not found") == 0);
}

TEST_CASE("an option written as a command is named, unless a program has that name") {
  const TempFolder folder;
  const ProgramPlaces none{folder / "bin", folder / "own", ""};
  CHECK(complaint(program("explain", {"logs", "more"}), none).text ==
        "program 'explain' was not found; did you mean ddp-run --explain logs?");
  CHECK(complaint(program("explain"), none).text ==
        "program 'explain' was not found; did you mean ddp-run --explain?");
  CHECK(complaint(program("version", {"x"}), none).text ==
        "program 'version' was not found; did you mean ddp-run --version?");
  CHECK(complaint(program("launch", {"train.py"}), none).text ==
        "program 'launch' was not found; ddp-run needs no such word before the program");
  CHECK_THAT(complaint(program("role"), none).text, Catch::Contains("give its path"));
  const auto real = folder.write("bin/explain", "", true);
  CHECK(resolve_program(program("explain", {"logs"}), none).executable == real);
}

TEST_CASE("a script without its ending, and a notebook, are answered with what to write") {
  const TempFolder folder;
  folder.write("train.py", "");
  folder.write("my.ipynb", "{}");
  const ProgramPlaces none{folder / "bin", folder / "own", ""};
  CHECK(complaint(program(folder / "train"), none).text == "program '" + (folder / "train") +
                                                               "' was not found; did you mean " +
                                                               (folder / "train.py?"));
  const auto notebook = complaint(program(folder / "my.ipynb"), none);
  CHECK(notebook.exit_code == 126);
  CHECK_THAT(notebook.text, Catch::Contains("is a notebook; make it a script with jupyter") &&
                                Catch::Contains("--to script " + (folder / "my.ipynb")) &&
                                Catch::EndsWith("and give " + (folder / "my.py")));
  LaunchConfig as_script = program(folder / "my.ipynb");
  as_script.run_path = true;
  CHECK(complaint(as_script, none).exit_code == 126);
  CHECK(complaint(program(folder / "no.ipynb"), none).exit_code == 127);
}

}  // namespace
}  // namespace ddp::launch
