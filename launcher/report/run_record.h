// What is told about a whole run: --summary for people, --result-json for programs.
#pragma once

#include <string>

#include "launcher/base/run_result.h"

namespace ddp::launch {

/// A table with one line per worker of the last round.
std::string summary_table(const RunResult& result);

/// One JSON object; README.md describes its fields.
std::string result_json(const RunResult& result, const std::string& run_id,
                        const std::string& host);

/// Of a run that ddp-run itself could not bring to an end; `error` says why.
std::string error_json(int exit_code, const std::string& error);

/// Replaces the file at once, by rename. Throws LaunchError when that is not possible.
void write_result_file(const std::string& path, const std::string& text);
/// Before the job: throws LaunchError (2) when the file could not be written after it, and removes
/// what an earlier run has left there.
void prepare_result_file(const std::string& path);

}  // namespace ddp::launch
