#include "launcher/logs/log_file.h"

#include "tests/support/catch.h"

#include <sstream>

#include "launcher/base/errors.h"
#include "tests/support/temp_folder.h"

namespace ddp::launch {
namespace {

using test::TempFolder;

std::string contents(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TEST_CASE("a log file is rotated between two lines, and no byte is lost") {
  const TempFolder folder;
  LogFile file;
  file.open(folder / "log", {10, 99}, true);
  std::string all;
  for (const char* text :
       {"one\n", "two\nthree\n", "f", "our\n", "a line longer than a file\n", "end"}) {
    all += text;
    CHECK(file.write(text) == 0);
  }
  std::string found;
  int files = 0;
  while (std::filesystem::exists(folder / ("log." + std::to_string(files + 1)))) ++files;
  for (int age = files; age > 0; --age) {
    const std::string part = contents(folder / ("log." + std::to_string(age)));
    CHECK(part.size() <= 10);
    found += part;
  }
  CHECK(found + contents(folder / "log") == all);
  CHECK(contents(folder / ("log." + std::to_string(files))) == "one\ntwo\n");
  CHECK(files >= 4);
}

TEST_CASE("a line that comes in pieces is not torn by a rotation") {
  for (const int keep : {0, 9}) {
    const TempFolder folder;
    LogFile file;
    file.open(folder / "log", {10, keep}, true);
    for (const char* piece :
         {"one\ntw", "o th", "ree\nfo", "ur\nf", "ive\n", "0123456789abc", "\n"})
      CHECK(file.write(piece) == 0);
    CHECK(contents(folder / "log") == "abc\n");
    if (keep == 0) continue;
    CHECK(contents(folder / "log.1") == "0123456789");  // longer than a file: cut
    CHECK(contents(folder / "log.2") == "four\nfive\n");
    CHECK(contents(folder / "log.3") == "two three\n");
    CHECK(contents(folder / "log.4") == "one\n");
  }
}

TEST_CASE("only so many older files are kept") {
  const TempFolder folder;
  LogFile file;
  file.open(folder / "log", {4, 2}, true);
  for (const char* text : {"a1\n", "b2\n", "c3\n", "d4\n"}) file.write(text);
  CHECK(contents(folder / "log") == "d4\n");
  CHECK(contents(folder / "log.1") == "c3\n");
  CHECK(contents(folder / "log.2") == "b2\n");
  CHECK_FALSE(std::filesystem::exists(folder / "log.3"));
  file.open(folder / "none", {4, 0}, true);
  for (const char* text : {"a1\n", "b2\n"}) file.write(text);
  CHECK(contents(folder / "none") == "b2\n");
}

TEST_CASE("a log file that cannot be moved aside grows instead") {
  const TempFolder folder;
  folder.write("log.1/in_the_way", "");
  LogFile file;
  file.open(folder / "log", {4, 1}, true);
  for (const char* text : {"a1\n", "b2\n", "c3\n"}) CHECK(file.write(text) == 0);
  CHECK(contents(folder / "log") == "a1\nb2\nc3\n");
}

TEST_CASE("a log file that cannot be made is an error") {
  LogFile file;
  CHECK_THROWS_WITH(file.open("/proc/none/log", {}, true),
                    "cannot write the log file '/proc/none/log': No such file or directory");
}

}  // namespace
}  // namespace ddp::launch
