// Lines for streams that may block. Also run under ThreadSanitizer.
#include "trainer/runtime/log/line_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pty.h>
#include <sys/resource.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <regex>
#include <thread>
#include <utility>
#include <vector>
#include "tests/support/catch.h"

#include "tests/trainer/config/test_files.h"

namespace ddp::train {
namespace {

/// The smallest pipe there is.
class Pipe {
 public:
  Pipe() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    out_ = ends[0];
    in_ = ends[1];
    ::fcntl(in_, F_SETPIPE_SZ, 4096);
  }
  ~Pipe() {
    close_reader();
    ::close(in_);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int in() const { return in_; }
  int out() const { return out_; }
  void close_reader() { ::close(std::exchange(out_, -1)); }

 private:
  int out_ = -1;
  int in_ = -1;
};

/// All that comes until `last` has come.
std::string read_until(int fd, const std::string& last) {
  std::string text;
  char buffer[4096];
  while (text.find(last) == std::string::npos) {
    pollfd readable{fd, POLLIN, 0};
    constexpr int kBound = 60'000;  // ms
    if (::poll(&readable, 1, kBound) != 1) FAIL("never came: " << last << "; only:\n" << text);
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got <= 0) FAIL("ended before: " << last << "; only:\n" << text);
    text.append(buffer, static_cast<std::size_t>(got));
  }
  return text;
}

std::string numbered(int number) {
  return fmt::format("line {:06} {}\n", number, std::string(80, '.'));
}

std::vector<int> numbers_in(const std::string& text) {
  static const std::regex line(R"(line (\d{6}) )");
  std::vector<int> numbers;
  for (std::sregex_iterator it(text.begin(), text.end(), line), end; it != end; ++it)
    numbers.push_back(std::stoi((*it)[1]));
  return numbers;
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// As trainer does: a reader that has exited is an error of write().
const auto kNoSigpipe = ::signal(SIGPIPE, SIG_IGN);

}  // namespace

TEST_CASE("lines that nobody reads hold nobody up, and their number is written in their place") {
  constexpr int kLines = 20'000;
  const Pipe pipe;
  LineWriter writer({{pipe.in(), "pipe"}}, "the log is main.log");
  for (int i = 0; i < kLines; ++i) writer.write(pipe.in(), numbered(i));
  const std::string text = read_until(pipe.out(), fmt::format("line {:06}", kLines - 1));
  static const std::regex notice(
      R"(\]\[trainer\]\[WARNING\] - (\d+) lines are missing here: the reader was too slow; the log is main\.log\n)");
  int missing = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), notice), end; it != end; ++it)
    missing += std::stoi((*it)[1]);
  const auto shown = numbers_in(text);
  CHECK(std::is_sorted(shown.begin(), shown.end()));
  CHECK(missing > 0);
  CHECK(static_cast<int>(shown.size()) + missing == kLines);
}

TEST_CASE("a terminal that is stopped with Ctrl-S holds nobody up") {
  int master = -1;
  int terminal = -1;
  REQUIRE(::openpty(&master, &terminal, nullptr, nullptr, nullptr) == 0);
  REQUIRE(::write(master, "\x13", 1) == 1);  // Ctrl-S
  {
    LineWriter writer({{terminal, "terminal"}});
    for (int i = 0; i < 5000; ++i) writer.write(terminal, numbered(i));
    REQUIRE(::write(master, "\x11", 1) == 1);  // Ctrl-Q
    const auto shown = numbers_in(read_until(master, "line 004999"));
    CHECK(std::is_sorted(shown.begin(), shown.end()));
  }
  ::close(terminal);
  ::close(master);
}

TEST_CASE("a stream that stands still does not hold up the other one") {
  const Pipe stuck, read;
  LineWriter writer({{stuck.in(), "stuck"}, {read.in(), "read"}});
  for (int i = 0; i < 1000; ++i) writer.write(stuck.in(), numbered(i));
  writer.write(read.in(), "careful\n");
  read_until(read.out(), "careful\n");
  read_until(stuck.out(), "line 000999");
}

TEST_CASE("two streams to one reader keep the order of their lines") {
  const Pipe pipe;
  const int second = ::dup(pipe.in());
  {
    LineWriter writer({{pipe.in(), "out"}, {second, "err", /*owned=*/true}});
    std::thread reader([&] {
      const auto shown = numbers_in(read_until(pipe.out(), "line 000999"));
      std::vector<int> all(1000);
      std::generate(all.begin(), all.end(), [n = 0]() mutable { return n++; });
      CHECK(shown == all);
    });
    for (int i = 0; i < 1000; ++i) writer.write(i % 3 == 0 ? second : pipe.in(), numbered(i));
    reader.join();
  }
  CHECK(::fcntl(second, F_GETFD) == -1);  // owned
}

TEST_CASE("a reader that goes away closes its stream, which another one says once") {
  Pipe gone;
  const Pipe read;
  LineWriter writer({{gone.in(), "standard output"}, {read.in(), "standard error"}},
                    "the log is main.log");
  writer.write(gone.in(), "hello\n");
  read_until(gone.out(), "hello\n");
  gone.close_reader();
  for (int i = 0; i < 100; ++i) writer.write(gone.in(), numbered(i));
  CHECK(writer.flush());
  writer.write(read.in(), "end\n");
  const std::string text = read_until(read.out(), "end\n");
  CHECK_THAT(text, Catch::Contains("standard output is closed (Broken pipe); the run continues "
                                   "without it; the log is main.log\n"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
}

TEST_CASE("at the end a reader that is slow gets all, and one that never comes is not waited for") {
  const Pipe slow, never;
  std::string text;
  std::thread reader([&] { text = read_until(slow.out(), "line 001999"); });
  const double seconds = seconds_of([&] {
    LineWriter writer({{slow.in(), "slow"}, {never.in(), "never"}});
    for (int i = 0; i < 2000; ++i) {
      writer.write(slow.in(), numbered(i));
      writer.write(never.in(), numbered(i));
    }
  });
  reader.join();
  CHECK(numbers_in(text).size() == 2000);
  CHECK(seconds < 30.0);  // 2 s of silence; the rest is for a busy machine
}

TEST_CASE("lines for a full disk are counted, and the next one that finds room says so") {
  const test::TestFolder folder;
  const int fd = ::open("log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  {
    LineWriter writer({{fd, "log", /*owned=*/true}});
    const rlimit none{0, old.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &none) == 0);
    for (int i = 0; i < 3; ++i) writer.write(fd, "lost\n");
    const bool flushed = writer.flush();
    ::setrlimit(RLIMIT_FSIZE, &old);
    CHECK(flushed);
    writer.write(fd, "found\n");
  }
  ::signal(SIGXFSZ, handler);
  const std::string text = test::read_file("log");
  CHECK_THAT(text, Catch::Contains("- 3 lines are missing here") && Catch::EndsWith("\nfound\n") &&
                       !Catch::Contains("lost"));
}

TEST_CASE("lines of several threads come whole, and a flush waits for those written before it") {
  const Pipe pipe;
  LineWriter writer({{pipe.in(), "pipe"}});
  std::string text;
  std::thread reader([&] { text = read_until(pipe.out(), "end\n"); });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) writer.write(pipe.in(), numbered(1000 * t + i));
      writer.flush();
    });
  }
  for (auto& thread : threads) thread.join();
  writer.write(pipe.in(), "end\n");
  reader.join();
  CHECK(numbers_in(text).size() == 800);
  CHECK(std::count(text.begin(), text.end(), '\n') == 801);
}

namespace {

/// Both ends of a terminal; what is written comes out as it is.
class Terminal {
 public:
  Terminal() {
    REQUIRE(::openpty(&screen_, &terminal_, nullptr, nullptr, nullptr) == 0);
    termios settings{};
    ::tcgetattr(terminal_, &settings);
    settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);
    ::tcsetattr(terminal_, TCSANOW, &settings);
  }
  ~Terminal() {
    ::close(terminal_);
    ::close(screen_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  int fd() const { return terminal_; }
  std::string until(const std::string& last) const { return read_until(screen_, last); }
  void press(char key) const { REQUIRE(::write(screen_, &key, 1) == 1); }

 private:
  int screen_ = -1;
  int terminal_ = -1;
};

const std::string kErased = "\r\x1b[2K";

}  // namespace

TEST_CASE("lines go above the live line, which is drawn again below them") {
  const Terminal terminal;
  const int second = ::dup(terminal.fd());
  LineWriter writer({{terminal.fd(), "out", false, true}, {second, "err", true, true}});
  writer.set_live_line("step 1");
  CHECK(terminal.until("step 1") == kErased + "step 1");
  writer.write(terminal.fd(), "hello\n");
  CHECK(terminal.until("step 1") == kErased + "hello\n" + kErased + "step 1");
  writer.write(second, "warning\n");
  CHECK(terminal.until("step 1") == kErased + "warning\n" + kErased + "step 1");
  writer.set_live_line("step 2");
  CHECK(terminal.until("step 2") == kErased + "step 2");
  writer.set_live_line("");
  CHECK(writer.flush());
  CHECK(terminal.until("[2K") == kErased);
  writer.write(terminal.fd(), "end\n");
  CHECK(terminal.until("end\n") == "end\n");
}

TEST_CASE("a terminal that stood still gets the newest live line alone") {
  const Terminal terminal;
  LineWriter writer({{terminal.fd(), "out", false, true}});
  writer.set_live_line("first");
  terminal.until("first");
  terminal.press('\x13');  // Ctrl-S
  for (int i = 0; i < 1000; ++i) writer.set_live_line(fmt::format("step {}", i));
  terminal.press('\x11');  // Ctrl-Q
  // Some may have been taken before the terminal stopped.
  const std::string text = terminal.until("step 999");
  CHECK_THAT(text, Catch::EndsWith(kErased + "step 999"));
  CHECK_THAT(text, !Catch::Contains("missing"));
}

TEST_CASE("what is no terminal has no live line") {
  const Pipe pipe;
  LineWriter writer({{pipe.in(), "out"}});
  writer.set_live_line("step 1");
  writer.write(pipe.in(), "end\n");
  CHECK(read_until(pipe.out(), "end\n") == "end\n");
}

}  // namespace ddp::train
