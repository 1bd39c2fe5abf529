#include "launcher/report/python_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <vector>

#include "launcher/base/text.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kLongestText = 200;

// A line of foreign text, as part of one of ours.
std::string shown(std::string_view text) {
  return printable(text.substr(0, kLongestText)) + (text.size() > kLongestText ? "..." : "");
}

// Length of a leading `[rank1]: ` (torch's excepthook) or `[default1]:` (a launcher's console).
std::size_t prefix_size(std::string_view line) {
  const auto end = line.find("]:");
  if (!line.starts_with('[') || end == std::string_view::npos || end < 2) return 0;
  const std::string_view name = line.substr(1, end - 1);
  const bool numbered = std::isdigit(static_cast<unsigned char>(name.back())) != 0;
  if (!numbered || name.find_first_of(" \t[") != std::string_view::npos) return 0;
  return end + (line.substr(end + 2).starts_with(' ') ? 3 : 2);
}

struct Line {
  std::string_view prefix;
  std::string_view text;
};

Line split_prefix(std::string_view line) {
  std::size_t size = 0;
  while (const auto more = prefix_size(line.substr(size))) size += more;
  return {line.substr(0, size), line.substr(size)};
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

// Takes the lines one after the other.
class Tracebacks {
 public:
  void add(const Line& line) {
    if (const auto frame = frame_in(line.text)) {
      frames_.push_back(*frame);
      in_message_ = false;
    } else if (!frames_.empty()) {
      if (!line.text.empty() && line.text.front() != ' ') end_traceback(line);
    } else if (in_message_ && goes_on(line)) {
      last_->text.append("\n").append(line.text);
    } else {
      in_message_ = false;
      caused_next_ = caused_next_ || line.text.starts_with("The above exception was the direct");
    }
  }
  std::optional<PythonError> last() && { return std::move(last_); }

 private:
  void end_traceback(const Line& line) {
    const Frame& frame = most_telling(frames_);
    PythonError error{.what = shown(line.text),
                      .place = shown(fmt::format("{}, line {}", frame.file, frame.line)),
                      .text = std::string(line.text)};
    if (caused_next_ && last_) error.causes = last_->text + "\n" + last_->causes;
    last_ = std::move(error);
    prefix_ = line.prefix;
    in_message_ = true;
    caused_next_ = false;
    frames_.clear();
  }
  // What follows without a gap is the message's, unless it is another writer's.
  bool goes_on(const Line& line) const {
    return !line.text.empty() && line.prefix == prefix_ && !line.text.starts_with("Traceback (");
  }

  std::optional<PythonError> last_;
  std::vector<Frame> frames_;  // of the traceback that has begun
  std::string prefix_;         // of the last error's line
  bool in_message_ = false;    // the last error's may continue
  bool caused_next_ = false;   // the last error is the cause of the next
};

}  // namespace

std::optional<PythonError> last_python_error(const std::string& words) {
  Tracebacks tracebacks;
  for (const std::string_view line : lines_of(words)) tracebacks.add(split_prefix(line));
  return std::move(tracebacks).last();
}

std::string last_error_line(const std::string& words) {
  if (const auto error = last_python_error(words))
    return fmt::format("{} ({})", error->what, error->place);
  std::string last;
  for (const std::string_view whole : lines_of(words)) {
    const std::string_view line = split_prefix(whole).text;
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) last = shown(line);
  }
  return last;
}

}  // namespace ddp::launch
