#include "launcher/report/error_file.h"

#include <sys/stat.h>

#include "tests/support/catch.h"

#include "tests/support/temp_folder.h"

namespace ddp::launch {
namespace {

using test::TempFolder;

std::string text_of(const std::string& contents) {
  const TempFolder folder;
  return read_error_file(folder.write("error.json", contents)).value().text;
}

TEST_CASE("the full form of an error file gives message and call stack") {
  const TempFolder folder;
  const auto path = folder.write("e", R"({"message":{"message":"RuntimeError: x","errorCode":3,
      "extraInfo":{"py_callstack":"Traceback\nRuntimeError: x","timestamp":"17"}}})");
  const auto message = read_error_file(path);
  REQUIRE(message);
  CHECK(message->text == "RuntimeError: x");
  CHECK(message->callstack == "Traceback\nRuntimeError: x");
}

TEST_CASE("the short form of an error file gives its message") {
  CHECK(text_of(R"({"message":"out of paper","timestamp":"17"})") == "out of paper");
}

TEST_CASE("an error file is passed on with the exit code in it, and only when it is understood") {
  const TempFolder folder;
  const auto pass_on = [&](const std::string& contents) {
    return error_file_to_pass_on(folder.write("e", contents), -9);
  };
  CHECK(pass_on(R"({"message":{"message":"x"}})") ==
        R"({"message":{"errorCode":-9,"message":"x"}})");
  CHECK(pass_on(R"({"message":"x"})") == R"({"message":"x"})");
  for (const char* broken : {"", "{", "[]", "{}"}) CHECK(pass_on(broken).empty());
  CHECK(error_file_to_pass_on("", 1).empty());
  CHECK(error_file_to_pass_on(folder.path(), 1).empty());
}

TEST_CASE("an error file with a name that is not UTF-8 is understood, as Python writes it") {
  CHECK(text_of(R"({"message":"no file 'caf\udce9.png'"})") == "no file 'caf\uFFFD.png'");
  CHECK(text_of(R"({"message":"\uD83D\uDE00 \uD83D \uD83Dx\uDE00 \\udce9 \u00e9"})") ==
        "\U0001F600 \uFFFD \uFFFDx\uFFFD \\udce9 \u00E9");
  CHECK(text_of(R"({"message":"\ud8)") == "(its error file is not valid JSON)");
  const TempFolder folder;
  const auto path = folder.write("e", R"({"message":{"message":"caf\udce9"}})");
  CHECK(error_file_to_pass_on(path, 1) ==
        "{\"message\":{\"errorCode\":1,\"message\":\"caf\uFFFD\"}}");
}

TEST_CASE("no error file is no message") {
  const TempFolder folder;
  CHECK_FALSE(read_error_file(folder / "none"));
  CHECK_FALSE(read_error_file(""));
}

TEST_CASE("a malformed error file says so and nothing else happens") {
  CHECK(text_of("") == "(its error file is empty)");
  CHECK(text_of("{\"message\":") == "(its error file is not valid JSON)");
  CHECK(text_of("\xff\xfe") == "(its error file is not valid JSON)");
  CHECK(text_of("[1, 2]") == "(its error file has no \"message\")");
  CHECK(text_of("{}") == "(its error file has no \"message\")");
  CHECK(text_of("{\"message\": 5}") == "5");
  CHECK(text_of("{\"message\": {\"message\": null, \"extraInfo\": []}}") == "null");
  CHECK(text_of(std::string(200'000, '[')) == "(its error file is not valid JSON)");
}

TEST_CASE("an error file with 200,000 nested brackets is refused, not a stack overflow") {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  const TempFolder folder;
  for (const auto& text : {"{\"message\":" + deep + "}", "{\"message\":{\"message\":" + deep + "}}",
                           "{\"message\":\"x\",\"y\":" + deep + "}"}) {
    CHECK(text_of(text) == "(its error file is malformed)");
    CHECK(error_file_to_pass_on(folder.write("e", text), 1).empty());
  }
  const std::string usual = R"({"message":{"message":[[[{"a":[1]}]]]}})";
  CHECK(text_of(usual) == R"([[[{"a":[1]}]]])");
}

TEST_CASE("an error file whose disk has not answered yet says so until it has been read") {
  const TempFolder folder;
  const auto file = ErrorFile::to_be_read(folder.write("e", R"({"message":"out of paper"})"));
  CHECK(read_error_file(file)->text == "(its error file cannot be read: its disk does not answer)");
  CHECK(file.written() == ErrorFile::kNever);
  const ErrorFile copy = file;
  file.read();
  CHECK(read_error_file(copy)->text == "out of paper");
  CHECK(copy.written() == ErrorFile(file.path).written());
}

TEST_CASE("an error file that is written after its worker's end is read as well") {
  const TempFolder folder;
  const auto file = ErrorFile::to_be_read(folder / "e");
  file.read();
  CHECK_FALSE(read_error_file(file));
  folder.write("e", R"({"message":"a child's"})");
  CHECK(read_error_file(file)->text == "a child's");
}

TEST_CASE("a huge error file is not read") {
  const TempFolder folder;
  const auto path = folder.write("e", "{");
  std::filesystem::resize_file(path, 1ULL << 33);
  CHECK(read_error_file(path)->text == "(its error file is too large)");
}

TEST_CASE("an error file that is a folder or a pipe is not waited for") {
  const TempFolder folder;
  CHECK(read_error_file(folder.path())->text == "(its error file is not a regular file)");
  const std::string pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(read_error_file(pipe)->text == "(its error file is not a regular file)");
}

TEST_CASE("every truncation of an error file gives some message") {
  const std::string whole =
      R"({"message":{"message":"R\u00e4 \"x\"","extraInfo":{"py_callstack":"a\nb","timestamp":"1"}}})";
  for (std::size_t size = 0; size <= whole.size(); ++size)
    CHECK_FALSE(text_of(whole.substr(0, size)).empty());
}

}  // namespace
}  // namespace ddp::launch
