// SIGTERM and SIGINT end a run after the step, with a snapshot: no step is lost.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include "tests/support/catch.h"

#include "tests/e2e/faults.h"
#include "tests/e2e/lone_rank.h"
#include "tests/e2e/unbroken.h"
#include "tests/e2e/workers.h"
#include "tests/support/loopback.h"

namespace ddp::test {
namespace {

using Catch::Contains;

// One step of it takes far longer than these tests wait: 2000 micro-batches of a larger model.
const Words kEndlessStep = {"gpt_config.n_layer=12", "gpt_config.n_embd=128",
                            "data_config.stride=1", "trainer_config.batch_size=1",
                            "trainer_config.grad_accumulation_steps=2000"};
// No end and no periodic saves: what is there after the signal was saved because of it.
const Words kNoEnd = {"trainer_config.max_steps=100000", "trainer_config.save_every_steps=100000"};

Words until(int step) { return {"trainer_config.max_steps=" + std::to_string(step)}; }

using Start = std::function<ChildOptions(const Workspace&, const Words&)>;
ChildOptions start_alone(const Workspace& place, const Words& overrides) {
  return alone(place, overrides);
}
ChildOptions start_two_ranks(const Workspace& place, const Words& overrides) {
  return launched(place, 2, overrides);
}

/// Sends the signal after step 12 and returns the steps that were done when the run ended.
std::vector<int> stop_after_step_12(ChildProgram& job, int signal, pid_t receiver) {
  job.wait_for("Step 12 | Train", 1, kPatience);
  ::kill(receiver, signal);
  job.wait_all_gone(kPatience);
  INFO(job.out() << job.err());
  CHECK(job.wait_exit(kPatience) == 75);  // preempted, saved
  CHECK_THAT(job.out(), Contains("Stopped by signal " + std::to_string(signal) + " and saved"));
  CHECK(errors_of(job.err()) == Words{});
  const auto steps = order_of_steps(job.out());
  REQUIRE(!steps.empty());
  CHECK(steps == range_of(1, steps.back()));
  return steps;
}

/// The stopped run resumes with the very next step, and ends as one that was not stopped.
void check_no_step_lost(const Start& start, const Workspace& stopped, int last_step) {
  const Words further = until(last_step + 5);
  const Workspace unbroken;
  succeed(start(unbroken, further));
  const auto resumed = succeed(start(stopped, further));
  CHECK(order_of_steps(resumed.out) == range_of(last_step + 1, last_step + 5));
  CHECK(differences(unbroken.snapshot(), stopped.snapshot()) == Words{});
}

// As systemd and SLURM do it: each worker gets it directly and passed on by ddp-run.
TEST_CASE("a signal to every process of a job loses no step") {
  const Workspace place;
  ChildProgram job(start_two_ranks(place, kNoEnd));
  job.wait_for("Step 12 | Train", 1, kPatience);
  for (const pid_t pid : {job.pid(), worker_pid(place, 0), worker_pid(place, 1)})
    ::kill(pid, SIGTERM);
  job.wait_all_gone(kPatience);
  INFO(job.out() << job.err());
  CHECK(job.wait_exit(kPatience) == 75);
  check_no_step_lost(start_two_ranks, place, order_of_steps(job.out()).back());
}

TEST_CASE(
    "a signal in the last step still leaves the last evaluation and the test to the next run") {
  const Workspace unbroken, place;
  const Words tested = joined(until(13), {"data_config.test_path=text.txt"});
  succeed(alone(unbroken, tested));
  {
    Words overrides = tested;
    overrides.emplace_back(R"(trainer_config.fault_plan=["step=13 phase=optimizer kind=stop"])");
    ChildProgram job(alone(place, overrides));
    wait_until_stopped(job.pid());
    job.signal(SIGTERM);
    job.signal(SIGCONT);
    job.wait_all_gone(kPatience);
    CHECK(job.wait_exit(kPatience) == 75);
  }
  for (int start = 0; start < 2; ++start) succeed(alone(place, tested));
  CHECK(differences(unbroken.snapshot(), place.snapshot()) == Words{});
  CHECK(summary_of(place)["outcome"] == "finished");
  CHECK(lines_of(read_bytes(place / "metrics.jsonl")).size() ==
        lines_of(read_bytes(unbroken / "metrics.jsonl")).size());
}

// Each micro-batch of the test takes a second.
TEST_CASE("a signal during the test leaves it to the next run") {
  const Workspace place;
  const Words tested =
      joined(until(2), {"data_config.test_path=text.txt", "data_config.train_split=1"});
  {
    Words overrides = tested;
    overrides.emplace_back(
        R"(trainer_config.fault_plan=["step=2 phase=evaluation kind=slow value=1000"])");
    ChildProgram job(alone(place, overrides));
    job.wait_for("Training finished", 1, kPatience);
    job.signal(SIGTERM);
    job.wait_all_gone(kPatience);
    CHECK(job.wait_exit(kPatience) == 75);
  }
  succeed(alone(place, tested));
  CHECK_THAT(read_bytes(place / "metrics.jsonl"), Contains(R"("split":"test")"));
}

/// One of the signals is followed by a resume.
void check_signals(const Start& start, int resumed) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const Workspace place;
    ChildProgram job(start(place, kNoEnd));
    const auto steps = stop_after_step_12(job, signal, job.pid());
    if (signal == resumed) check_no_step_lost(start, place, steps.back());
  }
}

TEST_CASE("a signal to a process alone loses no step") { check_signals(start_alone, SIGHUP); }

TEST_CASE("a signal to ddp-run loses no step") { check_signals(start_two_ranks, SIGINT); }

TEST_CASE("a signal to one rank stops all of them after the same step") {
  const Workspace place;
  ChildProgram job(start_two_ranks(place, kNoEnd));
  job.wait_for("Model: ", 1, kPatience);
  const auto steps = stop_after_step_12(job, SIGTERM, worker_pid(place, 1));
  check_no_step_lost(start_two_ranks, place, steps.back());
}

TEST_CASE("a stop signal is answered at once, and the run stops after the step in which it came") {
  const Workspace place;
  Words overrides = kNoEnd;
  overrides.emplace_back(R"(trainer_config.fault_plan=["step=13 phase=forward kind=stop"])");
  ChildProgram job(alone(place, overrides));
  wait_until_stopped(job.pid());
  job.signal(SIGINT);
  job.signal(SIGCONT);
  job.wait_all_gone(kPatience);
  CHECK(job.wait_exit(kPatience) == 75);
  CHECK_THAT(job.out(), Contains("Signal 2: the run stops after the current step and saves; Ctrl-C "
                                 "again ends it at once, unsaved\n"));
  CHECK(order_of_steps(job.out()) == range_of(1, 13));
}

const Words kManyMicroBatches = {"trainer_config.grad_accumulation_steps=4",
                                 "trainer_config.save_every_steps=100000"};

/// The signal comes in a step of which each micro-batch takes `milliseconds`.
void stop_in_long_step(const Start& start, const Workspace& place, int step,
                       int milliseconds = 12'000) {
  std::vector<std::string> faults;
  for (const int rank : {0, 1})
    faults.push_back(
        fmt::format("rank={} step={} phase=forward kind=slow value={}", rank, step, milliseconds));
  ChildProgram job(start(place, joined(kManyMicroBatches, {plan_of(faults)})));
  job.wait_for(step == 1 ? "Snapshots: " : fmt::format("Step {} | Train", step - 1), 1, kPatience);
  job.signal(SIGTERM);
  job.wait_all_gone(kPatience);
  INFO(job.out() << job.err());
  CHECK(job.wait_exit(kPatience) == 75);
  CHECK_THAT(job.out(), Contains(fmt::format("Step {} is abandoned", step)));
  CHECK(order_of_steps(job.out()) == range_of(1, step - 1));
}

TEST_CASE("a step that is too long after a signal is abandoned between micro-batches, untraced",
          "[waits]") {
  const auto& [start, step] =
      GENERATE(std::pair<Start, int>(start_alone, 3), std::pair<Start, int>(start_two_ranks, 1));
  const Workspace place, unbroken;
  stop_in_long_step(start, place, step);
  const Words further = joined(kManyMicroBatches, until(4));
  succeed(start(unbroken, further));
  const auto resumed = succeed(start(place, further));
  CHECK(order_of_steps(resumed.out) == range_of(step, 4));
  CHECK(differences(unbroken.snapshot(), place.snapshot()) == Words{});
}

// A third of the time is the step's: two micro-batches take longer, and four more than all of it.
TEST_CASE("a step that is too long for --shutdown-timeout is abandoned in time", "[waits]") {
  const Workspace place;
  const Start start = [](const Workspace& folder, const Words& overrides) {
    return launched(folder, 2, overrides, {"--shutdown-timeout=9"});
  };
  stop_in_long_step(start, place, 1, 2'500);
}

TEST_CASE("under nohup the end of the terminal does not stop a run") {
  const Workspace place;
  auto options = alone(place);
  options.ignore = {SIGHUP};
  ChildProgram job(options);
  job.wait_for("Step 12 | Train", 1, kPatience);
  job.signal(SIGHUP);
  job.wait_all_gone(kPatience);
  CHECK(job.wait_exit(kPatience) == 0);
}

/// The third field of /proc/PID/stat; 'Z' also for a process that does not exist.
char state_of(pid_t pid) {
  std::string stat;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), stat);
  const auto name_end = stat.rfind(") ");
  return name_end == std::string::npos ? 'Z' : stat[name_end + 2];
}

/// Sends the signal continuously until the process has ended.
void signal_until_gone(pid_t pid, int signal) {
  while (state_of(pid) != 'Z' && ::kill(pid, signal) == 0) std::this_thread::yield();
}

// As schedulers and wrappers do it that signal a process and its group.
TEST_CASE("the same SIGTERM twice within moments saves and stops, also without a launcher") {
  const Workspace place;
  ChildProgram job(alone(place, kNoEnd));
  job.wait_for("Step 12 | Train", 1, kPatience);
  job.signal(SIGTERM);
  while (is_pending(job.pid(), SIGTERM)) std::this_thread::yield();  // two that are pending are one
  job.signal(SIGTERM);
  job.wait_all_gone(kPatience);
  CHECK(job.wait_exit(kPatience) == 75);
  CHECK_THAT(job.out(), Contains("Stopped by signal 15 and saved"));
}

TEST_CASE("the same SIGTERM again while the process ends leaves its exit code at 75") {
  const Workspace place;
  ChildProgram job(alone(place, kNoEnd));
  job.wait_for("Step 12 | Train", 1, kPatience);
  job.signal(SIGTERM);
  job.wait_for("Next: ", 1, kPatience);
  signal_until_gone(job.pid(), SIGTERM);
  job.wait_all_gone(kPatience);
  CHECK(job.wait_exit(kPatience) == 75);
}

TEST_CASE("a wish for a report while the process ends does not kill it") {
  const Workspace place;
  ChildProgram job(alone(place));
  job.wait_for("Next: ", 1, kPatience);
  signal_until_gone(job.pid(), SIGUSR2);
  job.wait_all_gone(kPatience);
  CHECK(job.wait_exit(kPatience) == 0);
}

TEST_CASE("a second signal ends a process at once") {
  const Workspace place;
  ChildProgram job(alone(place, kEndlessStep));
  job.wait_for("Snapshots: ", 1, kPatience);
  job.signal(SIGINT);
  job.signal(SIGTERM);
  const int exit = job.wait_exit();
  CHECK((exit == -SIGINT || exit == -SIGTERM));  // either may be handled first
  CHECK(place.new_files() == std::set<std::string>{});
}

TEST_CASE("a second signal ends ddp-run and its workers at once") {
  const Workspace place;
  ChildProgram job(launched(place, 2, kEndlessStep));
  job.wait_for("Snapshots: ", 1, kPatience);
  job.signal(SIGTERM);
  job.wait_for("repeat to kill at once");
  // Two signals within 100 ms count as one.
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  job.signal(SIGTERM);
  job.wait_all_gone();
  CHECK(job.wait_exit() == 128 + SIGTERM);
  CHECK(place.new_files() == std::set<std::string>{});
}

/// A port of this machine at which somebody listens who never answers.
class SilentListener {
 public:
  SilentListener() { REQUIRE(::listen(socket_.fd, 8) == 0); }
  ~SilentListener() { ::close(socket_.fd); }
  SilentListener(const SilentListener&) = delete;
  SilentListener& operator=(const SilentListener&) = delete;

  int port() const { return socket_.port; }
  bool wait_for_a_caller(ChildProgram::Time bound) const {
    pollfd calls{socket_.fd, POLLIN, 0};
    return ::poll(&calls, 1, static_cast<int>(bound.count())) == 1;
  }

 private:
  LoopbackSocket socket_ = bound_loopback_socket();
};

// Whoever waits for the others to join has nothing to save. SIGUSR1 announces a preemption.
TEST_CASE("a signal ends a rank that still waits for the others") {
  const int signal = GENERATE(SIGTERM, SIGUSR1);
  const Workspace place;
  const SilentListener rank_0;
  ChildProgram rank_1(lone_rank(place, 1, 2, rank_0.port(), {}));
  REQUIRE(rank_0.wait_for_a_caller(kPatience));
  rank_1.signal(signal);
  const int exit = rank_1.wait_exit();
  if (signal == SIGUSR1) {
    CHECK(exit == 75);
  } else {
    CHECK((exit == -SIGTERM || exit == 128 + SIGTERM));
  }
}

// It writes the tokens of its rows to a folder in TMPDIR. Several ranks agree on a stop after a
// step.
TEST_CASE(
    "a signal while the data is read ends one process at once, and leaves no temporary files") {
  const Workspace place;
  {
    std::ofstream rows(place / "rows.jsonl");
    const std::string row = "{\"text\": \"" + std::string(2000, 'a') + "\"}\n";
    for (int i = 0; i < 60'000; ++i) rows << row;
  }
  const TempFolder temporary;
  const Words of_rows = {"data_config.path=rows.jsonl", "data_config.tokenizer=byte"};
  auto options = alone(place, of_rows);
  options.set["TMPDIR"] = temporary.path();
  FolderWatch watch(temporary.path());
  ChildProgram job(options);
  REQUIRE(watch.wait_for(
      [](const FileEvent& event) {
        return (event.mask & IN_CREATE) != 0 && event.name.starts_with("trainer-");
      },
      kPatience));
  job.signal(SIGTERM);
  job.wait_all_gone(kPatience);
  CHECK(job.wait_exit(kPatience) == 75);
  CHECK_THAT(log_of(place), Contains("Stopped by signal 15 before the first step"));
  CHECK(errors_of(job.err()) == Words{});
  for (const auto& file : std::filesystem::directory_iterator(temporary.path()))
    CHECK_FALSE(file.path().filename().string().starts_with("trainer-"));
}

TEST_CASE("SIGUSR1 to ddp-run ends a job that has not begun to train as preempted") {
  const Workspace place;
  ChildProgram job(launched(place, 2, {plan_of({"rank=1 phase=start kind=hang"})}));
  job.wait_for("FAULT INJECTION", 1, kPatience);
  job.signal(SIGUSR1);
  CHECK(job.wait_exit(kPatience) == 75);
  CHECK(errors_of(job.err()) == Words{});
}

TEST_CASE("SIGUSR1 saves and stops, and the job goes on as if nothing had been") {
  const Workspace place;
  const Unbroken unbroken(2);
  {
    ChildProgram job(
        launched(place, 2,
                 {"trainer_config.save_every_steps=1000", "distributed_config.hang_timeout_s=0",
                  plan_of({"rank=1 step=8 phase=forward kind=stop"})}));
    job.wait_for("Step 7 | Train", 1, kPatience);
    const pid_t rank_1 = worker_pid(place, 1);
    wait_until_stopped(rank_1);
    ::kill(rank_1, SIGUSR1);
    ::kill(rank_1, SIGCONT);
    job.wait_all_gone(kPatience);
    CHECK(job.wait_exit(kPatience) == 75);
  }
  succeed(launched(place, 2));
  check_same_end(unbroken, place);
}

/// SIGTERM comes while two ranks evaluate after `step`. Returns what the job has printed.
std::string stopped_in_evaluation(const Workspace& place, int step) {
  ChildProgram job(
      launched(place, 2,
               {plan_of({fmt::format("rank=1 step={} phase=evaluation kind=stop", step)}),
                "distributed_config.hang_timeout_s=0"}));
  job.wait_for(fmt::format("Step {} | Train", step), 1, kPatience);
  const pid_t rank_1 = worker_pid(place, 1);
  wait_until_stopped(rank_1);
  ::kill(rank_1, SIGTERM);
  signal_until_gone(rank_1, SIGCONT);  // it stops wherever it enters the evaluation
  job.wait_all_gone(kPatience);
  CHECK(job.wait_exit(kPatience) == 75);
  return job.out();
}

TEST_CASE("a signal during an evaluation breaks it off, and the resumed run makes it") {
  const Workspace place;
  const Unbroken unbroken(2);
  std::string output = stopped_in_evaluation(place, 17);
  output += succeed(launched(place, 2)).out;
  INFO(output);
  CHECK(evaluations_of(output) == evaluations_of(unbroken.out));
  check_same_end(unbroken, place);
}

TEST_CASE("a signal during the last evaluation loses nothing: the next run makes and keeps it") {
  const Workspace place;
  const Unbroken unbroken(2);
  stopped_in_evaluation(place, 40);
  CHECK(evaluations_of(succeed(launched(place, 2)).out).size() == 1);
  check_same_end(unbroken, place);
}

TEST_CASE("SIGUSR2 asks how the run is doing") {
  const Workspace place;
  ChildProgram job(launched(place, 2, {"trainer_config.max_steps=100000"}));
  job.wait_for("Step 7 | Train", 1, kPatience);
  job.signal(SIGUSR2);
  job.wait_for("Goodput ", 1, kPatience);
  job.signal(SIGTERM);
  job.wait_all_gone(kPatience);
  CHECK(job.wait_exit(kPatience) == 75);
}

}  // namespace
}  // namespace ddp::test
