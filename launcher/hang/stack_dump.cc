#include "launcher/hang/stack_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "launcher/base/system/path_search.h"
#include "launcher/base/system/proc_files.h"

namespace ddp::launch {
namespace {

namespace fs = std::filesystem;

struct Meaning {
  char state;
  const char* words;
};
constexpr Meaning kMeanings[] = {{'R', "running"},
                                 {'S', "sleeping"},
                                 {'D', "uninterruptible sleep"},
                                 {'T', "stopped"},
                                 {'t', "stopped by a debugger"},
                                 {'Z', "ended"}};

const char* meaning(char state) {
  const auto* const found = std::ranges::find(kMeanings, state, &Meaning::state);
  return found == std::end(kMeanings) ? "unknown" : found->words;
}

// "0" or empty: not in the kernel, or unknown.
std::string kernel_place(const fs::path& folder) {
  const std::string place = first_line(folder / "wchan");
  return place == "0" ? "" : place;
}

long voluntary_switches(const fs::path& folder) {
  std::ifstream status(folder / "status");
  for (std::string line; std::getline(status, line);) {
    long count = 0;
    if (std::sscanf(line.c_str(), "voluntary_ctxt_switches: %ld", &count) == 1) return count;
  }
  return 0;
}

bool is_python(pid_t pid) {
  std::error_code error;
  const fs::path exe = fs::read_symlink(process_folder(pid) + "/exe", error);
  return exe.filename().string().rfind("python", 0) == 0;
}

}  // namespace

KernelState kernel_state(pid_t pid) {
  const fs::path folder = process_folder(pid);
  const ProcessStat stat = read_stat(folder);
  if (stat.state == '?') return {};
  const std::string place = kernel_place(folder);
  return {stat.state,
          fmt::format("state {} ({}{}{})", stat.state, meaning(stat.state),
                      place.empty() ? "" : ", in ", place),
          stat.dying, voluntary_switches(folder)};
}

std::string thread_table(pid_t pid) {
  std::string table = fmt::format("pid {}: {}\n", pid, kernel_state(pid).text);
  for (const fs::path& folder : paths_in(process_folder(pid) + "/task")) {
    table +=
        fmt::format("thread {:<8} {:<16} {} {}\n", folder.filename().string(),
                    first_line(folder / "comm"), read_stat(folder).state, kernel_place(folder));
  }
  return table;
}

std::optional<Command> stack_tool(pid_t pid, const std::string& path) {
  const std::string id = std::to_string(pid);
  const bool python = is_python(pid);
  // Not every build of py-spy has --native.
  constexpr const char* kSpy = R"("$0" dump --native --pid $1 || exec "$0" dump --pid $1)";
  if (const auto spy = find_on_path("py-spy", path); !spy.empty() && python)
    return Command{"/bin/sh", {"sh", "-c", kSpy, spy, id}};
  if (const auto gdb = find_on_path("gdb", path); !gdb.empty()) {
    Command command{gdb,
                    {"gdb", "-iex", "set debuginfod enabled off", "-p", id, "-nx", "-batch", "-ex",
                     "thread apply all bt"}};
    const auto add = [&](const char* option, const char* value) {
      command.argv.insert(command.argv.end(), {option, value});
    };
    // py-bt is a command of Python's own scripts for gdb, which are next to its libraries. They
    // would also print the values of whole modules as arguments.
    if (python) add("-iex", "set auto-load safe-path /");
    if (python) add("-iex", "set print raw-frame-arguments on");
    if (python) add("-ex", "thread apply all -s py-bt");
    // It makes gdb fail if it could not attach, which -batch alone does not treat as an error.
    add("-ex", "frame");
    return command;
  }
  if (const auto stack = find_on_path("eu-stack", path); !stack.empty())
    return Command{stack, {"eu-stack", "-p", id}};
  return std::nullopt;
}

bool lacks_python_frames(pid_t pid, const std::string& path, const std::string& stacks) {
  const bool has_frames = stacks.find("Traceback (most recent call first)") != std::string::npos;
  return !has_frames && is_python(pid) && find_on_path("py-spy", path).empty();
}

}  // namespace ddp::launch
