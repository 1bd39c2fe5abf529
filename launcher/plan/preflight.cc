#include "launcher/plan/preflight.h"

#include <fmt/format.h>

#include <sstream>
#include <vector>

#include "launcher/base/errors.h"
#include "launcher/base/system/path_search.h"
#include "launcher/base/text.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

std::string find_program(const std::string& name, const ProgramPlaces& places) {
  if (name.find('/') != std::string::npos) return is_executable_file(name) ? name : "";
  if (const std::string beside = places.own_folder + "/" + name;
      name == "trainer" && is_executable_file(beside))
    return beside;
  return find_on_path(name, places.path);
}

// A ddp-run of its own starts the ranks: its handling of processes that hang or are left over
// applies to the check, too.
Command doctor(const std::string& trainer, const PreflightJob& job, const ProgramPlaces& places) {
  Command command{
      places.own_folder + "/ddp-run",
      {"ddp-run", "--standalone", fmt::format("--nproc-per-node={}", job.local_world_size),
       "--log-dir=/dev/null", "--report-lines=0", trainer, "doctor", "--quick"}};
  if (job.gpus > 0 && job.local_world_size > job.gpus) {
    const int most = (job.local_world_size + job.gpus - 1) / job.gpus;
    command.argv.push_back(fmt::format("--ranks_per_device={}", most));
  }
  return command;
}

Command given_program(const std::string& option, const ProgramPlaces& places) {
  std::istringstream words(option);
  std::vector<std::string> argv;
  for (std::string word; words >> word;) argv.push_back(word);
  const std::string executable = argv.empty() ? "" : find_program(argv.front(), places);
  if (executable.empty()) {
    throw LaunchError(
        kExitNotFound,
        fmt::format("--preflight={}: no such executable file; give its path, and arguments after "
                    "it, or auto",
                    printable(option)));
  }
  return {executable, argv};
}

// The job's options and place are not the check's.
Environment environment_of(Environment environment, const PreflightJob& job) {
  std::erase_if(environment, [](const auto& entry) { return entry.first.starts_with("PET_"); });
  environment[kLocalWorldSize] = std::to_string(job.local_world_size);
  environment[kRunId] = job.run_id;
  return environment;
}

}  // namespace

std::optional<Preflight> plan_preflight(const std::string& option, const PreflightJob& job,
                                        const ProgramPlaces& places, const Environment& inherited) {
  Preflight preflight{.shown = printable(option), .environment = environment_of(inherited, job)};
  if (option != "auto") {
    preflight.command = given_program(option, places);
    return preflight;
  }
  const std::string trainer = find_program("trainer", places);
  if (trainer.empty()) return std::nullopt;
  preflight.shown = "trainer doctor --quick";
  preflight.command = doctor(trainer, job, places);
  return preflight;
}

}  // namespace ddp::launch
