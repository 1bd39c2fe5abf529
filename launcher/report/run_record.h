// The record of a run: --summary for people, --result-json for programs.
#pragma once

#include <string>

#include "launcher/base/run_result.h"

namespace ddp::launch {

/// A table with one line per worker of the last round.
std::string summary_table(const RunResult& result);

/// One JSON object; README.md describes its fields.
std::string result_json(const RunResult& result, const std::string& run_id,
                        const std::string& host);

/// The result of a run that failed in ddp-run itself; `error` says why.
std::string error_json(int exit_code, const std::string& error);

/// Replaces the file atomically, by rename. Throws LaunchError if that fails.
void write_result_file(const std::string& path, const std::string& text);
/// Call before the job: throws LaunchError (2) if the file could not be written later, and removes
/// an earlier run's.
void prepare_result_file(const std::string& path);

}  // namespace ddp::launch
