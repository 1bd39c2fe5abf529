#include "trainer/tokenizer/text_stream.h"

#include "tests/support/catch.h"

namespace ddp::train {
namespace {

/// What appears after each piece, and at the end.
std::vector<std::string> shown(const std::vector<std::string>& pieces,
                               const std::vector<std::string>& stops) {
  TextStream stream(stops);
  std::vector<std::string> result;
  for (const auto& piece : pieces) result.push_back(stream.add(piece));
  result.push_back(stream.finish());
  return result;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string result;
  for (const auto& part : parts) result += part;
  return result;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("text without stops appears at once") {
  CHECK(shown({"a", "bc", ""}, {}) == Texts{"a", "bc", "", ""});
}

TEST_CASE("a character in several tokens appears when it is complete") {
  CHECK(shown({"\xF0\x9F", "\x98", "\x80!"}, {}) == Texts{"", "", "\xF0\x9F\x98\x80!", ""});
  CHECK(shown({"a\xC3", "\xA4"}, {}) == Texts{"a", "\xC3\xA4", ""});
}

TEST_CASE("bytes that are not UTF-8 become U+FFFD, as Python replaces them") {
  const std::string no = "\xEF\xBF\xBD";
  CHECK(joined(shown({"\xFF"}, {})) == no);
  CHECK(joined(shown({"\xC3"}, {})) == no);                    // cut at the end
  CHECK(joined(shown({"\xE2\x82", "x"}, {})) == no + "x");     // one for a part that could continue
  CHECK(joined(shown({"\xE0\x80\x80"}, {})) == no + no + no);  // overlong
  CHECK(joined(shown({"\xED\xA0\x80"}, {})) == no + no + no);  // a surrogate
  CHECK(joined(shown({"\xF4\x90\x80\x80"}, {})) == no + no + no + no);
}

TEST_CASE("a stop string ends the text before it, also across tokens") {
  CHECK(shown({"one S", "TO", "P two"}, {"STOP"}) == Texts{"one ", "", "", ""});
  CHECK(shown({"abab", "ac", "x"}, {"abac"}) == Texts{"ab", "", "", ""});
}

TEST_CASE("what only looked like a stop string appears later, or at the end") {
  CHECK(shown({"a ST", "ARE"}, {"STOP"}) == Texts{"a ", "STARE", ""});
  CHECK(shown({"a ST"}, {"STOP"}) == Texts{"a ", "ST"});
}

TEST_CASE("of several stop strings the first in the text counts") {
  CHECK(joined(shown({"x\ny END"}, {"END", "\n"})) == "x");
  CHECK(joined(shown({"abc"}, {"bcd", "c"})) == "ab");
}

TEST_CASE("a stream that has stopped says so and stays silent") {
  TextStream stream({"!"});
  stream.add("hi");
  CHECK_FALSE(stream.stopped());
  CHECK(stream.add("!!") == "");
  CHECK(stream.stopped());
  CHECK(stream.add("more") == "");
  CHECK(stream.finish() == "");
}

}  // namespace ddp::train
