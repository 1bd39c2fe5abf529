// The result of a run as text: a table for people, JSON for programs.
#pragma once

#include <string>

#include "launcher/base/run_result.h"

namespace ddp::launch {

/// Returns a table with one line per worker of the last round.
std::string summary_table(const RunResult& result);

/// Returns one JSON object; README.md describes its fields. `code`: ddp-run's exit code.
std::string result_json(const RunResult& result, const std::string& run_id, const std::string& host,
                        int code);

/// Returns the result of a run in which ddp-run itself failed with `error`.
std::string error_json(int exit_code, const std::string& error);

}  // namespace ddp::launch
