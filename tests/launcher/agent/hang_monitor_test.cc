// How long a worker has been in uninterruptible sleep.
#include "launcher/agent/hang_monitor.h"

#include <chrono>
#include <vector>

#include "tests/support/catch.h"

#include "tests/launcher/agent/fake_runner.h"

namespace ddp::launch {
namespace {

using std::chrono::seconds;

// A worker in uninterruptible sleep, which may last five seconds.
class Sleeper {
 public:
  Sleeper() {
    monitor_.begin_round(os.now());
    os.asleep = {0};
  }
  // The number of hung workers after a second of sleep.
  std::size_t look() {
    os.pass(seconds(1));
    return monitor_.look(workers_, os).size();
  }
  std::size_t look(int times) {
    std::size_t hung = 0;
    while (times-- > 0) hung += look();
    return hung;
  }
  void suspend_and_resume() {
    os.pass(seconds(60));
    monitor_.forgive_silence(os.now());
  }

  FakeRunner os;

 private:
  HangMonitor monitor_{HangRules{.uninterruptible = seconds(5)}};
  std::vector<Worker> workers_ = std::vector<Worker>(1);
};

TEST_CASE("one uninterruptible sleep that lasts too long is a hang") {
  Sleeper worker;
  CHECK(worker.look(5) == 0);
  CHECK(worker.look() == 1);
}

TEST_CASE("uninterruptible sleeps with work in between are no hang") {
  Sleeper worker;
  CHECK(worker.look(5) == 0);
  ++worker.os.switches;
  CHECK(worker.look(5) == 0);
  CHECK(worker.look() == 1);
}

TEST_CASE("uninterruptible sleep before a suspension does not count, nor while nobody looked") {
  Sleeper worker;
  CHECK(worker.look(3) == 0);
  SECTION("suspended by ddp-run's own signal") { worker.suspend_and_resume(); }
  SECTION("suspended with the machine") { worker.os.pass(seconds(60)); }
  CHECK(worker.look(5) == 0);
  CHECK(worker.look() == 1);
}

}  // namespace
}  // namespace ddp::launch
