#include "launcher/base/text.h"

#include "tests/support/catch.h"

namespace ddp::launch {
namespace {

TEST_CASE("foreign text is shown without control characters, in whatever form they come") {
  CHECK(printable("a\x1b[2Jb\x7f\n") == "a?[2Jb??");
  CHECK(printable("\x9b"
                  "2J") == "?2J");  // one byte, as in Latin-1
  CHECK(printable("\xc2\x9b"
                  "2J") == "?2J");  // U+009B in UTF-8
  CHECK(printable("\xc2\x80|\xc2\x9f") == "?|?");
  CHECK(printable("\xe0\x82\x9b|\xc0\x9b|\xf0\x80\x82\x9b") == "???|??|????");  // overlong
}

TEST_CASE("foreign text keeps its letters, and loses bytes that are no UTF-8") {
  const std::string words =
      "\xc3\x9c"
      "ber \xe6\xbc\xa2 \xf0\x9f\x99\x82 \xc2\xa0";
  CHECK(printable(words) == words);
  CHECK(printable("cut off: \xe6\xbc") == "cut off: ??");
  CHECK(printable("\xff\xfe") == "??");
  CHECK(printable("").empty());
}

}  // namespace
}  // namespace ddp::launch
