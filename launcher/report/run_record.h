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

}  // namespace ddp::launch
