// The writer's thread against descriptors that block: pipes that nobody reads.
#include "launcher/logs/file_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <thread>

#include "launcher/base/messages.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/logs/log_pump.h"
#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"

namespace ddp::launch {
namespace {

using namespace std::literals;

// Its write end blocks once the pipe is full, as a file's may.
struct BlockingFile {
  PipeEnds ends = open_pipe("test");
  FileWriter::Write write() {
    const auto owned = std::make_shared<Descriptor>(std::move(ends.write));
    return [owned](std::string_view text) { return write_fully(owned->get(), text); };
  }
  // To the end of the file, or `size` bytes.
  std::string read(std::size_t size = ~std::size_t{}) const {
    std::string text, part(64 << 10, '\0');
    ssize_t got = 1;
    while (text.size() < size && got > 0) {
      got = ::read(ends.read.get(), part.data(), std::min(part.size(), size - text.size()));
      if (got > 0) text.append(part, 0, static_cast<std::size_t>(got));
    }
    return text;
  }
};

void wait_for_progress(FileWriter& writer, std::uint64_t seen) {
  pollfd ready{writer.wait_fd(true, seen), POLLIN, 0};
  REQUIRE(::poll(&ready, 1, 60'000) == 1);
}

void wait_until_idle(FileWriter& writer) {
  for (auto seen = writer.progress(); !writer.is_idle(); seen = writer.progress()) {
    wait_for_progress(writer, seen);
    CHECK(writer.take_failures().empty());
  }
}

std::string numbers(std::size_t size) {
  std::string text;
  for (int i = 0; text.size() < size; ++i) text += std::to_string(i) + "\n";
  return text;
}

TEST_CASE("a file that blocks is appended to at once and gets every byte in order") {
  BlockingFile slow;
  FileWriter writer;
  auto file = FileWriter::open("slow", slow.write());
  const std::string text = numbers(5 << 20);
  CHECK(writer.is_idle());
  for (std::size_t at = 0; at < text.size(); at += 100'000)
    writer.append(file, std::string_view(text).substr(at, 100'000));
  CHECK(writer.is_long());
  CHECK(writer.waiting() == writer.waiting(*file));
  CHECK(writer.written(*file) + writer.waiting() == text.size());
  CHECK((slow.read(1 << 20) == text.substr(0, 1 << 20)));
  writer.close(file);
  CHECK(file == nullptr);
  CHECK((slow.read() == text.substr(1 << 20)));  // closed after its last byte
  wait_until_idle(writer);
  CHECK(writer.waiting() == 0);
}

TEST_CASE("what is appended while a file blocks is written after it, file by file") {
  BlockingFile slow, quick;
  FileWriter writer;
  auto first = FileWriter::open("slow", slow.write());
  auto second = FileWriter::open("quick", quick.write());
  const std::string text = numbers(1 << 20);
  writer.append(first, text);
  for (const std::string_view part : {"a", "b", "c"}) {
    writer.append(second, part);
    writer.append(first, part);
  }
  CHECK((slow.read(text.size()) == text));
  writer.close(first);
  writer.close(second);
  CHECK(slow.read() == "abc");
  CHECK(quick.read() == "abc");
  wait_until_idle(writer);
}

TEST_CASE("a file that fails is reported once, with what is not written") {
  FileWriter writer;
  const auto full = FileWriter::open("full", [](std::string_view) { return ENOSPC; });
  writer.append(full, "x"sv);
  pollfd ready{writer.wait_fd(false, writer.progress()), POLLIN, 0};
  REQUIRE(::poll(&ready, 1, 60'000) == 1);
  writer.append(full, "y"sv);
  const auto failures = writer.take_failures();
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].file == full);
  CHECK(failures[0].name == "full");
  CHECK(failures[0].error == ENOSPC);
  CHECK(failures[0].rest == "xy");
  writer.append(full, "z"sv);
  CHECK(writer.waiting() == 0);
  CHECK(writer.take_failures().empty());
  CHECK(writer.written(*full) == 0);
}

TEST_CASE("a console file that is full for a moment gets what comes afterwards") {
  const test::TempFolder folder;
  const Descriptor file(
      ::open((folder / "out").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  FileWriter files;
  ConsoleQueue queue(file.get(), &files);
  queue.add("before\n");
  wait_until_idle(files);
  const rlimit full{7, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &full) == 0);
  queue.add("lost\n");
  while (!files.is_idle()) std::this_thread::yield();
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  CHECK(queue.error() == EFBIG);
  queue.add("after\n");
  wait_until_idle(files);
  CHECK(queue.error() == EFBIG);
  std::string text;
  std::getline(std::ifstream(folder / "out"), text, '\0');
  CHECK(text == "before\nafter\n");
}

TEST_CASE("giving up on a file that blocks returns at once, with the number of bytes lost") {
  BlockingFile slow;
  const std::string text = numbers(1 << 20);
  {
    FileWriter writer;
    auto file = FileWriter::open("slow", slow.write());
    writer.append(file, text);
    CHECK(slow.read(10) == text.substr(0, 10));  // it is being written
    CHECK(writer.current() == "slow");
    writer.append(file, "never written"sv);
    const auto lost = writer.give_up();
    REQUIRE(lost);
    CHECK(lost->file == "slow");
    CHECK(lost->bytes == text.size() + 13);
    writer.append(file, "nor this"sv);
    CHECK(writer.waiting() == 0);
    writer.close(file);
  }
  CHECK((slow.read() == text.substr(10)));  // the thread ends after the write that blocked
}

TEST_CASE("giving up does nothing once all is written") {
  BlockingFile quick;
  FileWriter writer;
  auto file = FileWriter::open("quick", quick.write());
  CHECK_FALSE(writer.give_up());
  writer.append(file, "a"sv);
  wait_until_idle(writer);
  CHECK_FALSE(writer.give_up());
  writer.append(file, "b"sv);
  writer.close(file);
  CHECK(quick.read() == "ab");
}

TEST_CASE("giving up discards what follows the part that is being written") {
  BlockingFile first, second;
  const std::string text = numbers(1 << 20);
  {
    FileWriter writer;
    auto before = FileWriter::open("first", first.write());
    auto file = FileWriter::open("second", second.write());
    writer.append(before, text);
    writer.append(file, text);  // in two parts, as the thread has not begun with them
    writer.append(file, "never written"sv);
    writer.close(before);
    CHECK((first.read(text.size()) == text));  // not to its end: it may be closed after the second
    CHECK(second.read(10) == text.substr(0, 10));
    CHECK(writer.give_up());
    writer.close(file);
  }
  CHECK((second.read() == text.substr(10)));
}

TEST_CASE("a log file that fails leaves each line on the console once") {
  const test::TempFolder folder;
  folder.write("log", "");
  StreamPlan plan;
  plan.file = folder / "log";
  PipeEnds console = open_pipe("test");
  FileWriter files;
  const auto log = FileWriter::open(plan.file, [](std::string_view) { return ENOSPC; });
  {
    ConsoleQueue queue(console.write.get());
    ConsoleLines lines(plan, 0, queue, nullptr, files, log);
    lines.take("one\n", /*wait=*/false);
    files.append(log, "one\n"sv);
    lines.take("two\n", /*wait=*/true);
    CHECK(lines.is_behind());
    CHECK_FALSE(lines.needs_turn());  // the file does not hold it yet
    files.append(log, "two\n"sv);
    pollfd ready{files.wait_fd(false, 0), POLLIN, 0};
    REQUIRE(::poll(&ready, 1, 60'000) == 1);
    for (const auto& failure : files.take_failures()) lines.absorb(failure);
    CHECK_FALSE(lines.is_behind());
    queue.write_some();
  }
  console.write.reset();
  std::string text(100, '\0');
  text.resize(static_cast<std::size_t>(::read(console.read.get(), text.data(), text.size())));
  CHECK(text == "one\ntwo\n");
}

// A log file that is a named pipe blocks when the pipe is full.
struct BlockedLog {
  test::TempFolder folder;
  int reader = -1;
  StreamPlan plan;
  BlockedLog() {
    plan.mode = StreamMode::kPump;
    plan.file = folder / "log";
    REQUIRE(::mkfifo(plan.file.c_str(), 0600) == 0);
    reader = ::open(plan.file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  }
  ~BlockedLog() { ::close(reader); }
};

void turn(LogPump& pump, int timeout) {
  std::vector<pollfd> fds;
  pump.add_poll_fds(fds);
  ::poll(fds.data(), fds.size(), timeout);
  pump.handle(fds);
}

TEST_CASE("a log file that blocks slows its worker down, but not the pump, and loses nothing") {
  const auto began = Clock::now();
  const std::string line(1 << 10, 'x');
  BlockedLog log;
  std::size_t written = 0;
  LogPump pump;
  const int worker = pump.open_stream(log.plan, 0, /*is_stderr=*/false).release();
  ::fcntl(worker, F_SETFL, O_NONBLOCK);
  while (pump.held_up_until() < began) {
    while (::write(worker, line.data(), line.size()) > 0) written += line.size();
    turn(pump, 0);
  }
  CHECK(written > 4 << 20);
  CHECK(written < 6 << 20);
  pump.finish_round();  // reads the pipe's rest
  std::size_t found = 0;
  std::string part(64 << 10, '\0');
  while (found < written) {
    pollfd ready{log.reader, POLLIN, 0};
    REQUIRE(::poll(&ready, 1, 60'000) == 1);
    found += static_cast<std::size_t>(::read(log.reader, part.data(), part.size()));
  }
  CHECK(found == written);
  CHECK(pump.flush(LogPump::Patience::kUnlimited));
  CHECK(::read(log.reader, part.data(), 1) == 0);
  ::close(worker);
}

}  // namespace
}  // namespace ddp::launch
