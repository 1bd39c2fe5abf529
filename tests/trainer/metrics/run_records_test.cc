// The files and the terminal of a run, as logging_config asks for them.
#include "trainer/metrics/run_records.h"
#include "trainer/config/config.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/metrics/text_of.h"
#include "trainer/metrics/append_file.h"
#include "trainer/runtime/files/descriptor.h"

namespace ddp::train {
namespace {

using Catch::Contains;

Config config_in(const test::TempFolder& folder) {
  Config config;
  config.hydra.run_dir = folder.path();
  return config;
}

MetricRecord loss_at(int64_t step, double loss) {
  return {step, 0.5, "train", {{"loss", loss}, {"lr", 3e-4}}, 0.0};
}

/// Standard output is a terminal while this lives.
class TerminalAsOutput {
 public:
  TerminalAsOutput() : saved_(::dup(STDOUT_FILENO)) {
    const winsize size{24, 60, 0, 0};
    REQUIRE(::openpty(&screen_, &terminal_, nullptr, nullptr, &size) == 0);
    ::dup2(terminal_, STDOUT_FILENO);
  }
  ~TerminalAsOutput() {
    ::dup2(saved_, STDOUT_FILENO);
    for (const int fd : {saved_, screen_, terminal_}) ::close(fd);
  }
  TerminalAsOutput(const TerminalAsOutput&) = delete;
  TerminalAsOutput& operator=(const TerminalAsOutput&) = delete;

  std::string until(const std::string& last) {
    std::string text;
    char buffer[4096];
    while (text.find(last) == std::string::npos) {
      pollfd readable{screen_, POLLIN, 0};
      constexpr int kBound = 60'000;  // ms
      if (::poll(&readable, 1, kBound) != 1) FAIL("never came: " << last << "; only: " << text);
      const ssize_t got = ::read(screen_, buffer, sizeof buffer);
      if (got > 0) text.append(buffer, static_cast<std::size_t>(got));
    }
    return text;
  }

 private:
  int saved_;
  int screen_ = -1;
  int terminal_ = -1;
};

TEST_CASE("a run writes the files that its configuration asks for, and no others") {
  const test::TempFolder folder;
  Config config = config_in(folder);
  ::unsetenv("DDP_SHM_DIR");
  {
    Log log(true, folder / "main.log");
    config.logging.jsonl = false;
    RunRecords records(config, log);
    records.begin_after(0);
    records.write_info(machine_facts());
    records.write(loss_at(1, 2.0));
  }
  CHECK_FALSE(std::filesystem::exists(folder / "metrics.jsonl"));
  CHECK_FALSE(std::filesystem::exists(folder / "run_info.json"));
  CHECK_FALSE(std::filesystem::exists(folder / "tensorboard"));
  const test::TempFolder memory;
  ::setenv("DDP_SHM_DIR", memory.path().c_str(), 1);
  // A process that was killed while it wrote has left it; none has that number.
  const std::string leftover = folder.write("run_info.json.tmp.999999999", "{");
  {
    Log log(true, folder / "main.log");
    config.logging = {};
    config.logging.tensorboard = true;
    RunRecords records(config, log);
    records.begin_after(0);
    records.write_info(machine_facts());
    records.write(loss_at(1, 2.0));
  }
  ::unsetenv("DDP_SHM_DIR");
  CHECK_THAT(test::text_of(folder / "metrics.jsonl"), Contains(R"("loss":2)"));
  CHECK_THAT(test::text_of(memory / "metrics.prom"), Contains("trainer_loss{split=\"train\"} 2\n"));
  CHECK(std::filesystem::exists(folder / "tensorboard"));
  CHECK_FALSE(std::filesystem::exists(leftover));
  const auto info = nlohmann::json::parse(test::text_of(folder / "run_info.json"));
  CHECK(info["config"]["trainer_config"]["batch_size"] == 216);
  CHECK_THAT(info["environment"]["program"].get<std::string>(), Catch::StartsWith("trainer "));
}

TEST_CASE("what cannot be written is a warning, once, and no reason to stop") {
  const test::TempFolder folder;
  Config config = config_in(folder);
  config.hydra.run_dir = folder / "nowhere";
  {
    Log log(true, folder / "main.log");
    RunRecords records(config, log);
    records.begin_after(0);
    for (int64_t step = 1; step <= 5; ++step) {
      records.flush();
      records.write(loss_at(step, 2.0));
    }
  }
  const std::string text = test::text_of(folder / "main.log");
  const std::string warning = "[WARNING] - cannot open " + config.hydra.run_dir + "/metrics.jsonl";
  CHECK_THAT(text, Contains(warning));
  CHECK(text.find(warning) == text.rfind(warning));
}

TEST_CASE("on a terminal the live line tells of the steps, and the log file has their lines") {
  const test::TempFolder folder;
  const Config config = config_in(folder);
  TerminalAsOutput terminal;
  {
    Log log(true, folder / "main.log", LogLevel::kInfo, Console::kLive);
    RunRecords records(config, log);
    records.begin_after(10);
    log.step("Step 20 | Train Loss 2.5");
    records.write(loss_at(20, 2.5));
    records.step_done(20, 1, 110);
    const std::string line = terminal.until("loss 2.5000");
    CHECK_THAT(line, Contains("Epoch 1 | 20/110 "));
    log.info("Eval Loss 2.25");
    CHECK_THAT(terminal.until("loss 2.5000"),
               Contains("\r\x1b[2K[") && Contains("Eval Loss 2.25\r\n"));
    log.flush();
    CHECK_THAT(terminal.until("\x1b[2K"), !Contains("Epoch"));
  }
  CHECK_THAT(test::text_of(folder / "main.log"),
             Contains("Step 20 | Train Loss 2.5\n") && Contains("Eval Loss 2.25\n"));
}

TEST_CASE("on a terminal a line on the setup is cut to its width, and the log file has all of it") {
  const test::TempFolder folder;
  TerminalAsOutput terminal;  // of 60 columns
  const std::string full(200, 'x');
  {
    Log log(true, folder / "main.log", LogLevel::kInfo, Console::kLive);
    log.setup(full);
    CHECK(terminal.until("...\r\n") == std::string(56, 'x') + "...\r\n");
    log.setup("short");
    CHECK(terminal.until("\n") == "short\r\n");
  }
  CHECK_THAT(test::text_of(folder / "main.log"), Contains("[INFO] - " + full + "\n"));
}

TEST_CASE("a quiet run says nothing on standard output") {
  const test::TempFolder folder;
  TerminalAsOutput terminal;
  {
    Log log(true, folder / "main.log", LogLevel::kInfo, Console::kQuiet);
    log.info("one");
    log.step("two");
  }
  REQUIRE(::write(STDOUT_FILENO, "end", 3) == 3);
  CHECK(terminal.until("end") == "end");
  CHECK_THAT(test::text_of(folder / "main.log"), Contains("one\n") && Contains("two\n"));
}

TEST_CASE("a FIFO in place of a log or of metrics is an error, not a wait") {
  const test::TempFolder folder;
  const std::string path = folder / "main.log";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK_THROWS_WITH(Log(true, path), Contains("cannot write " + path + ": No such device"));
  CHECK_THROWS_WITH(AppendFile(path), Contains("cannot open " + path + ": No such device"));
  const Descriptor reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  CHECK_THROWS_WITH(AppendFile(path), Contains("cannot append to " + path + ": Illegal seek"));
}

}  // namespace
}  // namespace ddp::train
