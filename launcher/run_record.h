// What is told about a whole run: --summary for people, --result-json for programs.
#pragma once

#include <string>

#include "launcher/worker_group.h"

namespace ddp::launch {

/// A table with one line per worker of the last round.
std::string summary_table(const RunResult& result);

/// One JSON object; README.md describes its fields.
std::string result_json(const RunResult& result, const std::string& run_id,
                        const std::string& host);

/// Replaces the file at once, by rename. Throws LaunchError when that is not possible.
void write_result_file(const std::string& path, const std::string& text);
/// Found out before the job, not after it: throws LaunchError (2) when the file could not be
/// written.
void check_result_file(const std::string& path);

}  // namespace ddp::launch
