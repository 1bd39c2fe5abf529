#include "launcher/logs/line_splitter.h"

#include "tests/support/catch.h"

#include <vector>

namespace ddp::launch {
namespace {

using Lines = std::vector<std::string>;

Lines split(const std::vector<std::string>& pieces, std::size_t longest = 1 << 20) {
  LineSplitter splitter(longest);
  Lines lines;
  for (std::string_view text : pieces) {
    for (std::string_view line; splitter.next(text, line);) lines.emplace_back(line);
    CHECK(text.empty());
  }
  if (const auto rest = splitter.rest(); !rest.empty())
    lines.push_back("rest " + std::string(rest));
  return lines;
}

TEST_CASE("a line ends at a newline, a return, or both") {
  CHECK(split({"a\nb\rc\r\nd"}) == Lines{"a", "b", "c", "rest d"});
  CHECK(split({"\n\n\r\r\n\n"}) == Lines{"", "", "", "", ""});
}

TEST_CASE("a line that comes in pieces is given out once it is whole") {
  CHECK(split({"a", "", "b", "c\nd", "\n"}) == Lines{"abc", "d"});
}

TEST_CASE("a return and a newline in two pieces end one line") {
  CHECK(split({"a\r", "\nb\r", "c\n"}) == Lines{"a", "b", "c"});
}

TEST_CASE("bytes are bytes") {
  const std::string text("\0\xff\x80 \0", 5);
  CHECK(split({text + "\n"}) == Lines{text});
}

TEST_CASE("only a line that is longer than any is cut, and nothing of it is lost") {
  CHECK(split({"abcd\n"}, 4) == Lines{"abcd"});
  CHECK(split({"abcde\n"}, 4) == Lines{"abcd", "e"});
  CHECK(split({"ab", "cd", "efghi", "j\n"}, 4) == Lines{"abcd", "efgh", "ij"});
}

TEST_CASE("however the bytes are cut into pieces, the lines are the same") {
  const std::string text = "one\r\ntwo\rthree\n\nfour\r\r\n\nlast";
  const Lines whole = split({text});
  for (std::size_t a = 0; a <= text.size(); ++a) {
    for (std::size_t b = a; b <= text.size(); ++b) {
      REQUIRE(split({text.substr(0, a), text.substr(a, b - a), text.substr(b)}) == whole);
    }
  }
}

}  // namespace
}  // namespace ddp::launch
