#include "launcher/report/next_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "launcher/base/text.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kLongestText = 200;

// A line of foreign text, as part of one of ours.
std::string shown(std::string_view text) {
  return printable(text.substr(0, kLongestText)) + (text.size() > kLongestText ? "..." : "");
}

struct Frame {
  std::string file;
  std::string line;
};

// `  File "train.py", line 12, in main`, as Python writes it.
std::optional<Frame> frame_in(std::string_view line) {
  constexpr std::string_view kFile = "File \"", kLine = "\", line ";
  const auto file = line.find_first_not_of(' ');
  if (file == 0 || file == std::string_view::npos || !line.substr(file).starts_with(kFile))
    return std::nullopt;
  const auto end = line.find(kLine, file);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view number = line.substr(end + kLine.size());
  return Frame{std::string(line.substr(file + kFile.size(), end - file - kFile.size())),
               std::string(number.substr(0, number.find_first_not_of("0123456789")))};
}

bool is_library(const Frame& frame) {
  constexpr std::array<std::string_view, 4> kSigns{"/site-packages/", "/dist-packages/",
                                                   "/lib/python3", "<frozen "};
  return std::any_of(kSigns.begin(), kSigns.end(), [&](std::string_view sign) {
    return frame.file.find(sign) != std::string::npos;
  });
}

// The innermost one that is the user's own.
const Frame& most_telling(const std::vector<Frame>& frames) {
  const auto own = std::find_if_not(frames.rbegin(), frames.rend(), is_library);
  return own == frames.rend() ? frames.back() : *own;
}

std::string where_to_look(const ProcessFailure& failure, const Traces& traces) {
  if (const auto error = last_python_error(traces.words))
    return fmt::format("look at {}, which led to {}", error->place, error->what);
  if (failure.exit.signal != 0) return "its last lines say what it was doing when it was killed";
  const bool silent = trimmed(traces.words).empty();
  if (failure.exit.code == 0)  // not recorded
    return silent ? "nothing that it wrote was kept" : "its last lines are above";
  return fmt::format("exit code {0} is the program's own, {1}: look for sys.exit({0}) or exit({0})",
                     failure.exit.code, silent ? "without a word" : "see its last lines");
}

std::string where_output_is(const Traces& traces) {
  if (!traces.elsewhere.empty())
    return fmt::format("its files are on {}: run ddp-run --explain there", traces.elsewhere);
  if (!traces.output.empty()) return "its whole output is in " + traces.output;
  return "to keep all that each rank writes, run it again with --log-dir=logs --tee=3";
}

std::string about_the_rest(const ProcessFailure& failure, const Traces& traces) {
  const std::string& host = failure.host;
  return fmt::format(
      "no worker failed by itself: dmesg and the free memory, disk and network of {} may say why",
      traces.elsewhere.empty() || host.empty() ? "this machine" : host);
}

}  // namespace

std::optional<PythonError> last_python_error(const std::string& words) {
  std::optional<PythonError> found;
  std::vector<Frame> frames;
  for (std::size_t begin = 0; begin < words.size();) {
    const auto end = std::min(words.find('\n', begin), words.size());
    const std::string_view line = std::string_view(words).substr(begin, end - begin);
    begin = end + 1;
    if (const auto frame = frame_in(line)) {
      frames.push_back(*frame);
    } else if (!frames.empty() && !line.empty() && line.front() != ' ') {
      const Frame& cause = most_telling(frames);
      found = {shown(line), shown(fmt::format("{}, line {}", cause.file, cause.line))};
      frames.clear();
    }
  }
  return found;
}

std::vector<std::string> next_steps(const ProcessFailure& failure, const Traces& traces) {
  if (!failure.is_worker()) return {about_the_rest(failure, traces)};
  std::vector<std::string> steps{where_to_look(failure, traces), where_output_is(traces)};
  if (traces.world_size > 1) {
    steps.emplace_back(
        "try --nproc_per_node=1: if that fails too, debug it there; if not, look for what only "
        "some ranks do");
  }
  return steps;
}

}  // namespace ddp::launch
