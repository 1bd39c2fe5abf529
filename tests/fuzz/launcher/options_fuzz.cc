// Any command line and any PET_ variables end in a configuration, a text, or one complaint.
// Input: arguments, one per line; lines that begin with PET_ are variables.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/base/errors.h"
#include "launcher/cli/launch_config.h"
#include "launcher/plan/gpus.h"
#include "launcher/plan/worker_env.h"
#include "tests/fuzz/check.h"

using namespace ddp::launch;

namespace {

void check(const LaunchConfig& config) {
  if (config.action == LaunchAction::kPrint) {
    FUZZ_CHECK(!config.printed.empty());
    return;
  }
  FUZZ_CHECK(!config.program.empty());
  FUZZ_CHECK(config.restarts.max_restarts >= 0);
  FUZZ_CHECK(config.shutdown_timeout.count() >= 0);
  FUZZ_CHECK(!config.stop_signals.empty());
  MachineView machine;
  machine.root = "/nowhere";
  FUZZ_CHECK(local_world_size(config.nproc_per_node, machine) >= 1);
  std::vector<std::string> argv = config.program_args;
  argv.insert(argv.begin(), config.program);
  FUZZ_CHECK(worker_command({config.program, argv}, 7).argv.size() == argv.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> args{"ddp-run"};
  Environment environment;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  while (!rest.empty()) {
    const auto end = std::min(rest.find('\n'), rest.size());
    const std::string line(rest.substr(0, end).substr(0, rest.find('\0')));  // as argv has it
    const auto equals = line.find('=');
    if (line.rfind("PET_", 0) == 0 && equals != std::string::npos) {
      environment[line.substr(0, equals)] = line.substr(equals + 1);
    } else {
      args.push_back(line);
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  std::vector<const char*> argv;
  for (const auto& arg : args) argv.push_back(arg.c_str());
  try {
    check(parse_launch_args(static_cast<int>(argv.size()), argv.data(), environment));
  } catch (const LaunchError& error) {
    FUZZ_CHECK(error.exit_code() == 2);
    FUZZ_CHECK(error.what()[0] != '\0');
  }
  return 0;
}
