#include "trainer/metrics/run_info.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstddef>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "trainer/config/keys/config_text.h"
#include "trainer/runtime/process/build_commit.h"
#include "trainer/runtime/process/start_time.h"

namespace ddp::train {
namespace {

std::string cpu_model() {
  std::ifstream cpus("/proc/cpuinfo");
  for (std::string line; std::getline(cpus, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string command;
  for (std::string word; std::getline(file, word, '\0');)
    command += (command.empty() ? "" : " ") + word;
  return command;
}

std::string utc_text(double seconds) {
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm fields{};
  ::gmtime_r(&whole, &fields);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &fields));
}

}  // namespace

RunFacts machine_facts() {
  utsname system{};
  ::uname(&system);
  const int64_t memory = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGE_SIZE);
  return {{"program", std::string("trainer " DDP_VERSION)},
          {"commit", std::string(kBuildCommit)},
          {"command", command_line()},
          {"started", utc_text(process_start_unix_seconds())},
          {"host", std::string(system.nodename)},
          {"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
          {"cpu", cpu_model()},
          {"cpus", int64_t{std::thread::hardware_concurrency()}},
          {"memory_bytes", memory}};
}

std::string run_info_json(const Config& config, const RunFacts& facts) {
  using Json = nlohmann::ordered_json;
  Json environment = Json::object();
  for (const auto& [name, value] : facts)
    std::visit([&, &key = name](const auto& fact) { environment[key] = fact; }, value);
  const Json info = {{"config", Json::parse(config_to_json(config))}, {"environment", environment}};
  return info.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ddp::train
