#include "trainer/run/state/shared_snapshot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <vector>

#include "trainer/runtime/files/atomic_file.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// One path a line.
std::string files_of(const OpenedSnapshot& snapshot) {
  if (!snapshot.shards_in_memory.empty())
    return fmt::format("{}", fmt::join(snapshot.shards_in_memory, "\n"));
  return fs::absolute(snapshot.path).string();
}

}  // namespace

std::optional<OpenedSnapshot> open_as_rank_zero(std::optional<OpenedSnapshot> own,
                                                ProcessGroup& group) {
  const auto files = lines_of(group.broadcast_text(own ? files_of(*own) : ""));
  const std::string checksum = group.broadcast_text(own ? header_checksum(*own) : "");
  if (group.is_main() || files.empty()) return own;
  return open_if_same(files, checksum);
}

std::vector<bool> loadable_by_rank_zero(const OpenedSnapshot* snapshot,
                                        const std::vector<std::string>& names,
                                        const std::function<bool(const std::string&)>& is_optional,
                                        ProcessGroup& group) {
  TORCH_CHECK(snapshot != nullptr || !group.is_main(), "rank 0 has no snapshot to deal out");
  std::string there(names.size(), '1');
  for (std::size_t i = 0; group.is_main() && i < names.size(); ++i) {
    if (snapshot->file->find(names[i]) == nullptr && is_optional(names[i])) there[i] = '0';
  }
  there = group.broadcast_text(there);
  std::vector<bool> loadable;
  for (const char each : there) loadable.push_back(each == '1');
  return loadable;
}

std::optional<int> rank_without_folder(const std::string& path, ProcessGroup& group) {
  std::optional<AtomicFile> probe;
  if (group.is_main()) probe.emplace(path + ".probe");
  const std::string name = group.broadcast_text(probe ? fs::absolute(probe->temporary()) : "");
  std::error_code ignored;
  const auto seen = group.gather_doubles(fs::exists(name, ignored) ? 1.0 : 0.0);
  const auto blind = std::find(seen.begin(), seen.end(), 0.0);
  if (blind == seen.end()) return std::nullopt;
  return static_cast<int>(blind - seen.begin());
}

}  // namespace ddp::train
