#include "launcher/logs/shared_console.h"

#include "tests/support/catch.h"

namespace ddp::launch {
namespace {

constexpr SharedConsole::Writer kOut0{0, false}, kErr0{0, true}, kOut1{1, false};
const std::string kErase = "\r\x1b[2K";

SharedConsole shared_by_two(bool terminal) {
  SharedConsole console(terminal);
  for (const auto writer : {kOut0, kErr0, kOut1}) console.join(writer);
  return console;
}

TEST_CASE("lines that two workers write in pieces reach a pipe whole") {
  SharedConsole console = shared_by_two(false);
  CHECK(console.take(kOut0, "one ").empty());
  CHECK(console.take(kOut1, "two\nthr") == "two\n");
  CHECK(console.take(kErr0, "trouble\n") == "trouble\n");
  CHECK(console.take(kOut0, "more\nend") == "one more\n");
  CHECK(console.leave(kOut0) == "end");
  CHECK(console.take(kOut1, "ee\r") == "three\r");
  CHECK(console.leave(kOut1).empty());
}

TEST_CASE("the bytes of a single worker pass at once") {
  SharedConsole console(false);
  console.join(kOut0);
  console.join(kErr0);
  CHECK(console.take(kOut0, "name? ") == "name? ");
  CHECK(console.take_note("ddp-run: note\n") == "ddp-run: note\n");
  CHECK(console.leave(kOut0).empty());
}

TEST_CASE("a line that is endless is torn rather than held back forever") {
  SharedConsole console = shared_by_two(false);
  const std::string much((16 << 20) + 1, 'x');
  CHECK(console.take(kOut0, much) == much);
}

TEST_CASE("on a terminal the lines of others go above a progress bar, which is drawn again") {
  SharedConsole console = shared_by_two(true);
  CHECK(console.take(kErr0, "\r 10%|#") == "\r 10%|#");
  CHECK(console.take(kErr0, "\r 20%|##") == "\r 20%|##");
  CHECK(console.take(kOut1, "half a ").empty());
  CHECK(console.take(kOut1, "line\n") == kErase + "half a line\n\r 20%|##");
  CHECK(console.take_note("ddp-run: note\n") == kErase + "ddp-run: note\n\r 20%|##");
  CHECK(console.take(kOut0, "loss\n") == kErase + "loss\n\r 20%|##");
  CHECK(console.take(kOut0, "a\nhal") == kErase + "a\nhal");  // a long text, in several reads
  CHECK(console.take(kOut0, "f\n") == "f\n");
  CHECK(console.take(kErr0, "\r 25%|##") == "\r 25%|##");
  CHECK(console.take(kOut0, "(Pdb) ") == "(Pdb) ");  // waits for an answer
  CHECK(console.take(kErr0, "\r 30%|###") == "\r 30%|###");
  CHECK(console.take(kOut0, "\r\x1b[2Khello\n") == "\r\x1b[2Khello\n");  // its own writer's
  CHECK(console.take_note("ddp-run: note\n") == "ddp-run: note\n");
}

TEST_CASE("of a bar that is held back only the end is shown") {
  SharedConsole console = shared_by_two(true);
  console.take(kErr0, "\r 10%");
  for (const char* text : {"\r 20%", "\r 30%\r", "\r 40%"})
    CHECK(console.take(kOut1, text).empty());
  CHECK(console.take(kOut1, "\n") == kErase + "\r 40%\n\r 10%");
  CHECK(console.take(kOut1, "line\r").empty());
  CHECK(console.take(kOut1, "\n") == kErase + "line\r\n\r 10%");
}

TEST_CASE(
    "a line takes the place of the outer one of nested bars, which is not drawn over the inner") {
  SharedConsole console = shared_by_two(true);
  console.take(kErr0, "\rsteps\n\repochs\x1b[A");
  CHECK(console.take(kOut1, "line\n") == kErase + "line\n");
}

TEST_CASE("on a terminal an unfinished line is shown, and finished below those of others") {
  SharedConsole console = shared_by_two(true);
  CHECK(console.take(kOut0, "loading ") == "loading ");
  CHECK(console.take(kOut1, "ready\n") == kErase + "ready\nloading ");
  CHECK(console.take(kOut0, "done\n") == "done\n");
  CHECK(console.take(kOut1, "end\n") == "end\n");
}

TEST_CASE("the line of a worker that has ended stays, and the next one begins below it") {
  SharedConsole console = shared_by_two(true);
  console.take(kErr0, "\r 50%");
  CHECK(console.leave(kErr0) == "\n");
  CHECK(console.take_note("ddp-run: note\n") == "ddp-run: note\n");
  console.take(kOut0, "\r\x1b[2KEpoch 1");
  console.take(kOut0, "\r\x1b[2K");  // erased: the line is empty
  CHECK(console.leave(kOut0).empty());
}

}  // namespace
}  // namespace ddp::launch
