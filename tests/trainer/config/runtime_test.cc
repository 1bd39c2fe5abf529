// Log, atomic file and error file.
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>
#include "tests/support/catch.h"

#include "tests/support/skip.h"
#include "tests/trainer/config/test_files.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"
#include "trainer/runtime/files/error_file.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/log/log.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

using test::read_file;
using test::write_file;

void publish(const std::string& path, const std::string& text, const std::string& previous = "") {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit(previous);
}

std::size_t files_here() {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(".")) ++n;
  return n;
}

TEST_CASE("a committed file holds what was written, and nothing else is left") {
  const test::TestFolder folder;
  {
    AtomicFile file("s.pt");
    file.write("ab", 2);
    file.write("", 0);
    file.write("cd", 2);
    CHECK_FALSE(std::filesystem::exists("s.pt"));
    file.commit();
  }
  CHECK(read_file("s.pt") == "abcd");
  CHECK(files_here() == 1);
}

TEST_CASE("a file that holds the text already is left as it is") {
  const test::TestFolder folder;
  const auto inode = [] {
    struct stat info {};
    REQUIRE(::stat("c.yaml", &info) == 0);
    return info.st_ino;
  };
  publish_if_changed("c.yaml", "a: 1\n");
  const auto first = inode();
  publish_if_changed("c.yaml", "a: 1\n");
  CHECK(inode() == first);
  publish_if_changed("c.yaml", "a: 12\n");
  CHECK(inode() != first);
  CHECK(read_file("c.yaml") == "a: 12\n");
  CHECK(files_here() == 1);
}

TEST_CASE("without commit the old file stays and the temporary one goes") {
  const test::TestFolder folder;
  publish("s.pt", "old");
  { AtomicFile("s.pt").write("new", 3); }
  CHECK(read_file("s.pt") == "old");
  CHECK(files_here() == 1);
}

TEST_CASE("the previous file is kept under the name asked for") {
  const test::TestFolder folder;
  publish("s.pt", "1", "s.pt.prev");
  CHECK_FALSE(std::filesystem::exists("s.pt.prev"));
  publish("s.pt", "2", "s.pt.prev");
  CHECK(read_file("s.pt.prev") == "1");
  publish("s.pt", "3", "s.pt.prev");
  CHECK(read_file("s.pt.prev") == "2");
  CHECK(read_file("s.pt") == "3");
  CHECK(files_here() == 2);
}

TEST_CASE("the previous file is kept where a second name cannot be linked") {
  const test::TestFolder folder;
  // `.tmp.<pid>` still fits into a file name of 255 characters, `.tmp.<pid>.link` does not.
  const std::string suffix = ".tmp." + std::to_string(::getpid());
  const std::string path(255 - suffix.size(), 'x');
  publish(path, "1", "prev");
  publish(path, "2", "prev");
  CHECK(read_file("prev") == "1");
  CHECK(read_file(path) == "2");
}

TEST_CASE("a file that cannot be created or written is a failed run that names the path") {
  const test::TestFolder folder;
  CHECK(test::error_of<RunError>([] { AtomicFile("no/such/s.pt"); }) ==
        "cannot create no/such/s.pt: No such file or directory");
  REQUIRE(::mkfifo("pipe", 0600) == 0);
  CHECK(test::error_of<RunError>([] { AtomicFile("pipe"); }) ==
        "cannot create pipe: it is a device, a pipe or a link in /dev; choose another path");
  CHECK_THROWS_AS(AtomicFile("/dev/stdout"), RunError);
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit none{0, old.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &none) == 0);
  const std::string error = test::error_of<NoSpaceError>([] { publish("s.pt", "x"); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  ::signal(SIGXFSZ, handler);
  CHECK(error == "cannot write s.pt: File too large");
}

TEST_CASE("a link with the name of the temporary file is not followed") {
  const test::TestFolder folder;
  publish("precious", "gold");
  std::filesystem::create_symlink("precious", "s.pt.tmp." + std::to_string(::getpid()));
  publish("s.pt", "x");
  CHECK(read_file("precious") == "gold");
  CHECK(read_file("s.pt") == "x");
  CHECK(std::filesystem::symlink_status("s.pt").type() == std::filesystem::file_type::regular);
}

TEST_CASE("only temporaries of dead processes are removed") {
  const test::TestFolder folder;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  const std::string dead = "s.pt.tmp." + std::to_string(child);
  const std::string own =
      "s.pt.tmp." + std::to_string(::getpid());  // a killed predecessor of the same id
  const std::string living = "s.pt.tmp." + std::to_string(::getppid());
  for (const std::string& name :
       {dead, dead + ".link", own, living, std::string("s.pt.tmp.x"), std::string("s.pt.tmp."),
        std::string("other.tmp.1"), std::string("s.pt")}) {
    write_file(name, "");
  }
  CHECK(remove_stale_temporaries("s.pt") == 3);
  CHECK(files_here() == 5);
  CHECK(std::filesystem::exists(living));
  CHECK(remove_stale_temporaries(folder.path("s.pt")) == 0);
  CHECK(revoke_temporaries("s.pt") == 1);
  CHECK_FALSE(std::filesystem::exists(living));
  CHECK(remove_stale_temporaries("no/folder/s.pt") == 0);
}

constexpr int kNoTrace = 77;

/// A child that commits "2" over "1" and is killed at its n-th stop at a system call; false when it
/// ended before.
bool killed_at_stop(int stops) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(kNoTrace);
    ::raise(SIGSTOP);
    publish("s.pt", "2", "s.pt.prev");
    ::_exit(0);
  }
  int status = 0;
  for (int i = 0; i <= stops; ++i) {
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status) || WIFSIGNALED(status)) return false;
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
  }
  ::kill(child, SIGKILL);
  while (::waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
  }
  return WIFSIGNALED(status);
}

bool tracing_works() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 ? 0 : kNoTrace);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_CASE("a process killed at any system call of a commit leaves one of the two names whole") {
  const test::TestFolder folder;
  if (!tracing_works())
    return ddp::test::say_skipped("ptrace: this system does not let a process trace its child");
  int stops = 1;
  for (;; ++stops) {
    std::filesystem::remove("s.pt.prev");
    write_file("s.pt", "1");
    write_file("s.pt.prev", "0");
    const bool killed = killed_at_stop(stops);
    const std::string now = read_file("s.pt");
    const std::string before = read_file("s.pt.prev");
    CAPTURE(stops, now, before);
    REQUIRE((now == "1" || now == "2"));
    REQUIRE((before == "0" || before == "1"));
    if (now == "2") REQUIRE(before == "1");
    remove_stale_temporaries("s.pt");
    REQUIRE(files_here() == 2);
    if (!killed) break;
  }
  CHECK(stops >
        16);  // open, write, fsync, link, rename, unlink, rename, close, each with entry and exit
}

TEST_CASE("errors of the JSON library are plain words") {
  const auto said = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const nlohmann::json::exception& error) {
      return plain_json_error(std::string("x: ") + error.what());
    }
    return "";
  };
  const nlohmann::json object = {{"a", "text"}};
  CHECK(said([&] { return object.at("a").get<int>(); }) ==
        "x: a value is of type string, not number");
  CHECK(said([&] { return object.at("b"); }) == "x: 'b' is missing");
  CHECK(said([&] { return object.at("a").at("b"); }) == "x: a value is not an object or a list");
  CHECK(said([&] { return nlohmann::json("\xFF").dump(); }) == "x: a text is not valid UTF-8");
  CHECK(said([&] { return nlohmann::json::parse("{\n1"); }) ==
        "x: malformed JSON at line 2, column 1");
  CHECK(plain_json_error("no such file") == "no such file");
}

TEST_CASE("what a terminal would obey becomes escapes, C1 in UTF-8 included, and nothing else") {
  const std::string controls =
      "a\n\t\x1b[1m\x7f\r \xc2\x80\xc2\x9b"
      "2J\xc2\x9f";
  CHECK(one_line(controls) == "a\\n\\x09\\x1b[1m\\x7f\\x0d \\x80\\x9b2J\\x9f");
  CHECK(without_controls(controls) == "a\n\t\\x1b[1m\\x7f\\x0d \\x80\\x9b2J\\x9f");
  const std::string plain = "\xc2\xa0\xc3\xbc\xe6\xbc\xa2\xc2";  // U+00A0, ü, 漢, an incomplete one
  CHECK(one_line(plain) == plain);
}

TEST_CASE("a message is bounded, whatever is quoted in it, and keeps its place and its fix") {
  const std::string quoted(5'000'000, 'x');
  const std::string said = UserError("a.yaml: '" + quoted + "' is unknown; remove it").what();
  CHECK(said.size() < 5000);
  CHECK(said.starts_with("a.yaml: 'xxx"));
  CHECK(said.ends_with("xxx' is unknown; remove it"));
  std::string letters;
  for (int i = 0; i < 100; ++i) letters += "\xC3\xA9";
  CHECK(shown("a" + letters) == "a" + letters.substr(0, 98) + "...");
}

TEST_CASE("the error file has torchelastic's form") {
  const test::TestFolder folder;
  ::setenv("TORCHELASTIC_ERROR_FILE", folder.path("error.json").c_str(), 1);
  write_error_file("line \"1\"\nbyte \xff", 3);
  ::unsetenv("TORCHELASTIC_ERROR_FILE");
  const auto json = nlohmann::json::parse(read_file("error.json"));
  CHECK(json.size() == 1);
  const auto& body = json.at("message");
  CHECK(body.at("message") == "line \"1\"\nbyte \xef\xbf\xbd");
  CHECK(body.at("errorCode") == 3);
  CHECK(body.at("extraInfo").at("py_callstack").is_string());
  const std::string seconds = body.at("extraInfo").at("timestamp");
  CHECK(std::abs(std::stoll(seconds) - static_cast<long long>(::time(nullptr))) <= 2);
  CHECK(files_here() == 1);
}

TEST_CASE("the error file is skipped quietly when it is unset, empty or cannot be written") {
  const test::TestFolder folder;
  ::unsetenv("TORCHELASTIC_ERROR_FILE");
  write_error_file("x", 1);
  ::setenv("TORCHELASTIC_ERROR_FILE", "", 1);
  write_error_file("x", 1);
  ::setenv("TORCHELASTIC_ERROR_FILE", "/no/such/folder/e.json", 1);
  write_error_file("x", 1);
  ::unsetenv("TORCHELASTIC_ERROR_FILE");
  CHECK(files_here() == 0);
}

/// Sends a descriptor into a file while it lives.
class Redirect {
 public:
  Redirect(int fd, const char* file) : fd_(fd), saved_(::dup(fd)) {
    const int to = ::open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(to, fd_);
    ::close(to);
  }
  ~Redirect() {
    ::dup2(saved_, fd_);
    ::close(saved_);
  }
  Redirect(const Redirect&) = delete;
  Redirect& operator=(const Redirect&) = delete;

 private:
  int fd_;
  int saved_;
};

TEST_CASE("the log writes Hydra's form, levels to their streams and all of it to the file") {
  const test::TestFolder folder;
  {
    const Redirect out(STDOUT_FILENO, "out");
    const Redirect err(STDERR_FILENO, "err");
    Log log(true, "run/deep/main.log", LogLevel::kInfo);
    log.debug("hidden");
    log.info("hello");
    log.warning("careful");
    log.error("broken");
  }
  const std::string file = read_file("run/deep/main.log");
  const std::regex form(
      R"(\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\]\[trainer\]\[INFO\] - hello\n\[[^\]]*\]\[trainer\]\[WARNING\] - careful\n\[[^\]]*\]\[trainer\]\[ERROR\] - broken\n)");
  CHECK(std::regex_match(file, form));
  CHECK(read_file("out") + read_file("err") == file);
  CHECK(read_file("out").find("careful") == std::string::npos);
  CHECK(read_file("err").find("hello") == std::string::npos);
}

TEST_CASE("ranks beside the main one write warnings and errors to stderr and no file") {
  const test::TestFolder folder;
  {
    const Redirect out(STDOUT_FILENO, "out");
    const Redirect err(STDERR_FILENO, "err");
    Log log(false, "main.log", LogLevel::kDebug);
    log.info("hidden");
    log.warning("careful");
  }
  CHECK(read_file("out").empty());
  CHECK(read_file("err").find("[trainer][WARNING] - careful\n") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists("main.log"));
}

TEST_CASE("lines of several threads never mix, and a second log appends") {
  const test::TestFolder folder;
  const std::string text(300, 'x');
  {
    const Redirect out(STDOUT_FILENO, "out");
    Log log(true, "main.log", LogLevel::kDebug);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int k = 0; k < 50; ++k) log.debug(text);
      });
    }
    for (std::thread& thread : threads) thread.join();
    Log(true, "main.log").info(text);
  }
  std::istringstream lines(read_file("main.log"));
  std::size_t n = 0;
  for (std::string line; std::getline(lines, line); ++n) {
    REQUIRE(line.front() == '[');
    REQUIRE(line.substr(line.find(" - ") + 3) == text);
  }
  CHECK(n == 201);
}

TEST_CASE("a log that cannot be written is a user's error with the folder") {
  const test::TestFolder folder;
  write_file("plain", "");
  CHECK(test::error_of<UserError>([] {
          Log(true, "plain/main.log");
        }).find("hydra.run.dir: cannot create plain") == 0);
  std::filesystem::create_directory("main.log");
  CHECK(test::error_of<UserError>([] { Log(true, "main.log"); }) ==
        "hydra.run.dir: cannot write main.log: Is a directory; choose another folder");
}

}  // namespace
}  // namespace ddp::train
