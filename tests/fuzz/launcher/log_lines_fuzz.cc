// Lines, prefixes and folding: no byte is lost and no rank's order changed, however the bytes come.
// Input: two bytes of settings, then what is split.
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/logs/line_prefix.h"
#include "launcher/logs/line_splitter.h"
#include "launcher/logs/repeat_folding.h"
#include "tests/fuzz/check.h"

using namespace ddp::launch;

namespace {

using Lines = std::vector<std::string>;

// What LineSplitter is to do, byte by byte.
Lines plain_split(std::string_view text, std::size_t longest) {
  Lines lines;
  std::string line;
  bool after_return = false;
  for (const char c : text) {
    if (c == '\n' && after_return) {
      after_return = false;
      continue;
    }
    after_return = c == '\r';
    if (c == '\n' || c == '\r') {
      lines.push_back(line);
      line.clear();
    } else {
      if (line.size() == longest) {
        lines.push_back(line);
        line.clear();
      }
      line += c;
    }
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

Lines split(std::string_view text, std::size_t piece, std::size_t longest) {
  LineSplitter splitter(longest);
  Lines lines;
  while (!text.empty()) {
    std::string_view now = text.substr(0, piece);
    text.remove_prefix(now.size());
    for (std::string_view line; splitter.next(now, line);) lines.emplace_back(line);
    FUZZ_CHECK(now.empty());
  }
  if (const auto rest = splitter.rest(); !rest.empty()) lines.emplace_back(rest);
  return lines;
}

// The first byte of each line encodes its rank, how time passes, and whether the rank then leaves.
void fold(const Lines& lines) {
  std::map<int, Lines> said;
  std::map<int, Lines> shown;
  RepeatFolding folder(std::chrono::milliseconds(10),
                       [&](const auto& ranks, std::string_view line) {
                         FUZZ_CHECK(!ranks.empty() && std::is_sorted(ranks.begin(), ranks.end()));
                         FUZZ_CHECK(std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end());
                         for (const int rank : ranks) shown[rank].emplace_back(line);
                       });
  RepeatFolding::Time now{};
  std::set<int> left;
  for (int rank = 0; rank < 4; ++rank) folder.join(rank);
  for (const auto& line : lines) {
    const int first = line.empty() ? 0 : static_cast<unsigned char>(line[0]);
    const int rank = first % 4;
    if (left.count(rank) > 0) continue;
    if (first / 64 == 1) now += std::chrono::milliseconds(first / 4 % 16);
    const std::string text = line.substr(std::min<std::size_t>(1, line.size()));
    said[rank].push_back(text);
    folder.add(rank, text, now);
    if (first / 64 == 2) {
      left.insert(rank);
      folder.leave(rank);
    }
    folder.settle(now);
    const auto deadline = folder.deadline();
    FUZZ_CHECK(!deadline || (*deadline > now && *deadline <= now + std::chrono::milliseconds(10)));
  }
  folder.flush();
  FUZZ_CHECK(said == shown);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t piece = 1 + data[0];
  const std::size_t longest = 1 + data[1];
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Lines lines = split(text, piece, longest);
  FUZZ_CHECK(lines == plain_split(text, longest));
  fold(lines);

  const PrefixPlace place{"role", "host.domain", 1, 3};
  std::string prefix;
  const std::vector<int> ranks{0, 1, 2, 5};
  LinePrefix(text, place).append_to(prefix, ranks, {});
  if (text.find('$') == std::string_view::npos) FUZZ_CHECK(prefix == text);
  return 0;
}
