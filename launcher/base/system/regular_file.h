// Reads a small file written by other processes, robust against anything put in its place.
#pragma once

#include <cstddef>
#include <ios>
#include <optional>
#include <string>

namespace ddp::launch {

enum class FileProblem { kNone, kAbsent, kUnreadable, kNotRegular, kTooLarge, kUnanswered };
enum class Links { kFollow, kRefuse };

struct FileText {
  FileProblem problem = FileProblem::kNone;
  std::string text;  // empty with a problem
};

/// Returns the end of a file: at most `most` bytes; nullopt if it is not a regular file or cannot
/// be read. May wait for its disk.
std::optional<std::string> end_of_file(const std::string& path, std::streamoff most);

/// Reads at most `most` bytes; a larger file, a folder, a pipe or a device is a problem. Never
/// blocks.
FileText read_regular_file(const std::string& path, std::size_t most, Links links);

}  // namespace ddp::launch
