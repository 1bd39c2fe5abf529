#include "launcher/plan/program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "launcher/base/errors.h"
#include "launcher/base/system/path_search.h"
#include "launcher/cli/option_table.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

namespace fs = std::filesystem;

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

[[noreturn]] void not_found(const std::string& what, const std::string& tip) {
  throw LaunchError(kExitNotFound, fmt::format("program '{}' was not found; {}", what, tip));
}

[[noreturn]] void not_executable(const std::string& what, const std::string& why) {
  throw LaunchError(kExitNotExecutable, fmt::format("program '{}' {}", what, why));
}

// A ddp-run that was installed into a virtual or conda environment serves that one's Python, as
// torchrun does, whether or not the environment is active.
std::string python_of_own_environment(const ProgramPlaces& places) {
  const std::string prefix = places.own_folder + "/..";
  const std::string python = places.own_folder + "/python3";
  const bool environment = exists(prefix + "/pyvenv.cfg") || exists(prefix + "/conda-meta");
  return environment && is_executable_file(python) ? python : "";
}

std::string find_python(const ProgramPlaces& places) {
  if (!places.python.empty()) {
    const std::string found = places.python.find('/') != std::string::npos
                                  ? places.python
                                  : find_on_path(places.python, places.path);
    if (is_executable_file(found)) return found;
    not_found(places.python, "set PYTHON_EXEC to a Python interpreter");
  }
  if (std::string own = python_of_own_environment(places); !own.empty()) return own;
  for (const char* name : {"python3", "python"}) {
    const std::string found = find_on_path(name, places.path);
    if (!found.empty()) return found;
  }
  not_found("python3", "Python scripts need it; install it or set PYTHON_EXEC");
}

Command with_python(const LaunchConfig& config, const ProgramPlaces& places) {
  const std::string python = find_python(places);
  Command command{python, {python, "-u"}};
  if (config.module) command.argv.emplace_back("-m");
  command.argv.push_back(config.program);
  return command;
}

// `train` where train.py is meant.
std::string tip_for_script(const std::string& name) {
  return exists(name + ".py") ? fmt::format("did you mean {}.py?", name) : "";
}

std::string check_path(const std::string& path) {
  if (is_folder(path)) not_executable(path, "is a directory; give a program or a .py script");
  if (!exists(path)) {
    const std::string tip = tip_for_script(path);
    not_found(path, tip.empty() ? error_text(ENOENT) + "; check the path" : tip);
  }
  if (!is_executable_file(path))
    not_executable(path, "is not executable; run chmod +x, or use --run-path for a Python script");
  return path;
}

// `ddp-run explain logs`, `ddp-run launch train.py`: other tools' commands.
std::string tip_for_command(const std::string& name, const std::vector<std::string>& args) {
  const OptionSpec* option = find_option(name);
  if (option && option->group == OptionGroup::kOther) {
    const bool with_value = option->value && !args.empty();
    return fmt::format("did you mean ddp-run --{}{}?", name, with_value ? " " + args.front() : "");
  }
  if (name.starts_with("\u2013") || name.starts_with("\u2014"))
    return "it begins with a typographic dash; write --";
  if (name.find('=') != std::string::npos)
    return fmt::format("put variables before ddp-run: {} ddp-run ...", name);
  if (name == "launch" || name == "run") return "ddp-run needs no such word before the program";
  const std::string places = "it is neither on PATH nor next to ddp-run";
  if (!exists(name)) {
    const std::string tip = tip_for_script(name);
    return tip.empty() ? places + "; give its path" : tip;
  }
  if (is_executable_file("./" + name)) return fmt::format("{}; did you mean ./{}?", places, name);
  return fmt::format(
      "{}; for the file here use --run-path if it is Python, else chmod +x {} and write ./{}",
      places, name, name);
}

std::string find_executable(const LaunchConfig& config, const ProgramPlaces& places) {
  const std::string& name = config.program;
  if (name.find('/') != std::string::npos) return check_path(name);
  if (const std::string found = find_on_path(name, places.path); !found.empty()) return found;
  if (const std::string beside = places.own_folder + "/" + name; is_executable_file(beside))
    return beside;
  if (is_folder(name)) not_executable(name, "is a directory; give a program or a .py script");
  not_found(name, tip_for_command(name, config.program_args));
}

// Python and the shell would complain of its first line.
void refuse_notebook(const LaunchConfig& config) {
  if (config.module || config.no_python || !config.program.ends_with(".ipynb") ||
      !exists(config.program))
    return;
  const std::string script = config.program.substr(0, config.program.size() - 6) + ".py";
  not_executable(config.program,
                 fmt::format("is a notebook; make it a script with jupyter nbconvert --to script "
                             "{}, and give {}",
                             config.program, script));
}

bool is_python_script(const LaunchConfig& config) {
  if (config.run_path) return true;
  if (config.no_python) return false;
  for (const std::string_view ending : {".py", ".pyc", ".pyz"}) {
    if (config.program.ends_with(ending)) return true;
  }
  return exists(config.program + "/__main__.py");
}

}  // namespace

ProgramPlaces ProgramPlaces::of_this_process() {
  ProgramPlaces places;
  const char* path = std::getenv("PATH");
  places.path = path ? path : "/usr/local/bin:/usr/bin:/bin";
  std::error_code error;
  places.own_folder = fs::read_symlink("/proc/self/exe", error).parent_path().string();
  if (const char* python = std::getenv("PYTHON_EXEC")) places.python = python;
  return places;
}

Command resolve_program(const LaunchConfig& config, const ProgramPlaces& places) {
  Command command;
  refuse_notebook(config);
  if (config.module) {
    command = with_python(config, places);
  } else if (is_python_script(config)) {
    if (!exists(config.program)) not_found(config.program, error_text(ENOENT) + "; check the path");
    if (is_folder(config.program) && !exists(config.program + "/__main__.py")) {
      not_executable(config.program, "is a directory without a __main__.py");
    }
    if (::access(config.program.c_str(), R_OK) != 0)
      not_executable(config.program, "cannot be read; check its permissions");
    command = with_python(config, places);
  } else {
    command.executable = find_executable(config, places);
    command.argv = {config.program};
  }
  command.argv.insert(command.argv.end(), config.program_args.begin(), config.program_args.end());
  return command;
}

}  // namespace ddp::launch
