// Standard output of a mode.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ddp::train {

/// Writes to stdout and flushes. Throws RunError.
void print(const std::string& text);

/// `json` with a line end, in one line unless `indent` is given. Bytes other than UTF-8, which
/// paths and generated texts may have, are replaced.
std::string json_output(const nlohmann::ordered_json& json, int indent = -1);

/// Flushes stdout at the end of a mode: a full disk must not look like success. Throws RunError if
/// output was lost.
void finish_stdout();

}  // namespace ddp::train
