// What --explain makes of a failing rank's words.
#include <signal.h>

#include "tests/support/catch.h"

#include "launcher/report/advice.h"
#include "launcher/report/python_error.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Catch::StartsWith;
using launch::advice_for;
using launch::last_error_line;
using launch::last_python_error;
using launch::next_steps;
using Words = std::vector<std::string>;

TEST_CASE("every failure has a next step, also one of another node or of no worker") {
  launch::ProcessFailure away;
  away.host = "b";
  away.exit.code = 3;
  CHECK(next_steps(away, {.words = "x", .elsewhere = "b", .world_size = 16})[1] ==
        "its files are on b: run ddp-run --explain there");
  launch::ProcessFailure node = away;
  node.local_rank = launch::ProcessFailure::kNoRank;
  CHECK(
      next_steps(node, {.words = "", .elsewhere = "b"}) ==
      Words{"no worker failed on its own; check dmesg and the free memory, disk and network of b"});
  CHECK_THAT(next_steps(node, {})[0], Contains("network of this machine"));
}

TEST_CASE("a rank is to be tried alone, also one of several nodes") {
  launch::ProcessFailure failure;
  failure.exit.code = 3;
  CHECK(next_steps(failure, {.words = "x"}).size() == 2);
  CHECK_THAT(next_steps(failure, {.words = "x", .world_size = 2})[2],
             StartsWith("try --nproc_per_node=1: if "));
  CHECK_THAT(next_steps(failure, {.words = "x", .world_size = 2, .several_nodes = true})[2],
             StartsWith("try --standalone --nproc_per_node=1: if "));
}

TEST_CASE("a traceback is found behind the prefixes of torch and of a launcher") {
  const auto said = [](const std::string& prefix) {
    return prefix + "Traceback (most recent call last):\n" + prefix +
           "  File \"train.py\", line 12, in <module>\n" + prefix + "    main()\n" + prefix +
           "ValueError: bad shape\n";
  };
  for (const char* prefix : {"[rank1]: ", "[rank12]:", "[default1]:", "[default1]:[rank1]: "}) {
    CAPTURE(prefix);
    const auto error = last_python_error(said(prefix));
    REQUIRE(error);
    CHECK(error->what == "ValueError: bad shape");
    CHECK(error->place == "train.py, line 12");
    CHECK(last_error_line(said(prefix)) == "ValueError: bad shape (train.py, line 12)");
  }
  for (const char* prefix : {"[rank]: ", "[W1123 10:00:00]: ", "rank1]: ", "[]:"}) {
    CAPTURE(prefix);
    CHECK_FALSE(last_python_error(said(prefix)));
  }
  CHECK(last_error_line("[rank0]: it ends\n\n \n") == "it ends");
  CHECK(last_error_line("\n").empty());
}

TEST_CASE("an error's message has more lines, up to a gap or another writer's, and causes") {
  const std::string trace = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n";
  const auto lines =
      last_python_error(trace + "RuntimeError: sizes:\n\tsize mismatch for w\n\nmore");
  CHECK(lines->text == "RuntimeError: sizes:\n\tsize mismatch for w");
  CHECK(lines->what == "RuntimeError: sizes:");
  const auto other = last_python_error("[rank0]:   File \"a.py\", line 1\n[rank0]: E: x\nall\n");
  CHECK(other->text == "E: x");
  const std::string first = trace + "FileNotFoundError: x\n\n";
  const auto from = last_python_error(
      first + "The above exception was the direct cause of the following exception:\n\n" + trace +
      "DataError: y\n");
  CHECK(from->text == "DataError: y");
  CHECK(from->causes == "FileNotFoundError: x\n");
  const auto during = last_python_error(
      first + "During handling of the above exception, another exception occurred:\n\n" + trace +
      "ValueError: y\n");
  CHECK(during->causes.empty());
}

TEST_CASE("where an exception ended it, only its own words and those of its causes count") {
  const launch::PythonError error{"ValueError: y", "a.py, line 1", "ValueError: y"};
  const std::string words = "FileNotFoundError: none yet\nValueError: y";
  CHECK(advice_for({}, words, error).empty());
  CHECK(advice_for({}, words).size() == 1);
  auto caused = error;
  caused.causes = "FileNotFoundError: x\n";
  CHECK_THAT(advice_for({}, "", caused)[0], StartsWith("paths are relative"));
  caused.text = "RuntimeError: sizes\n\tsize mismatch for w";
  CHECK_THAT(advice_for({}, "", caused)[0], StartsWith("the checkpoint is of a model"));
  launch::ProcessFailure aborted;
  aborted.exit.signal = SIGABRT;
  CHECK_THAT(advice_for(aborted, "Watchdog caught collective operation timeout", error)[0],
             StartsWith("a rank did not join"));
}

TEST_CASE("the line of a traceback is the user's innermost, else the innermost") {
  const std::string library = "  File \"/usr/lib/python3.11/json/decoder.py\", line 355, in d\n";
  const auto only_library = last_python_error(library + "    raise\njson.E: Extra data\n");
  CHECK(only_library->place == "/usr/lib/python3.11/json/decoder.py, line 355");
  CHECK(only_library->what == "json.E: Extra data");
  const auto last = last_python_error("  File \"a.py\", line 1, in f\nKeyError: 'a'\n\nDuring\n" +
                                      ("  File \"b\033.py\", line 2\n" + library) + "OSError\n");
  CHECK(last->place == "b?.py, line 2");
  CHECK(last->what == "OSError");
  CHECK_FALSE(last_python_error("  File \"a.py\", line 1, in f\n    cut off here"));
  CHECK_FALSE(last_python_error("File \"a.py\", line 1, in f\nKeyError"));
  CHECK_FALSE(last_python_error(""));
}

TEST_CASE("what is more specific is said of a failing rank's words") {
  CHECK_THAT(advice_for({}, "torch.OutOfMemoryError: CUDA out of memory.")[0],
             Contains("GPU's memory"));
  CHECK_THAT(advice_for({}, "[rank1]: Watchdog caught collective operation timeout")[0],
             Contains("did not join a collective"));
  CHECK_THAT(advice_for({},
                        "Gloo connectFullMesh failed with [tcp/pair.cc:152] timed out connecting: "
                        "SO_ERROR: Connection refused, remote=[127.0.1.1]:29110$1")[0],
             Contains("GLOO_SOCKET_IFNAME"));
  CHECK(advice_for({}, "all is well").empty());
}

}  // namespace
}  // namespace ddp::test
