// run_info.json in a run's folder: the run's configuration and environment.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ddp::train {

struct Config;

inline constexpr const char* kRunInfoFile = "run_info.json";

/// Facts about program, machine and model, in display order.
using RunFacts = std::vector<std::pair<std::string, std::variant<std::string, double, int64_t>>>;

/// This machine and this process: program, host, system, CPUs, memory, command, start.
RunFacts machine_facts();

/// {"config": {...}, "environment": {...}}
std::string run_info_json(const Config& config, const RunFacts& facts);

}  // namespace ddp::train
