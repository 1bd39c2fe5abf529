// The workers' store that ddp-run serves in a process of its own.
#include <dirent.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include "tests/support/catch.h"

#include "tests/launcher/nodes.h"
#include "tests/launcher/store/request_bytes.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Catch::StartsWith;
using Lines = std::vector<std::string>;

struct Job {
  TempFolder tmp;

  ChildOptions with(const Lines& options, const Lines& actions) const {
    ChildOptions child = stub_job(tmp, options, actions);
    child.unset = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE"};
    return child;
  }
};

Lines answers_in(const std::string& out) {
  Lines answers;
  for (const auto& line : lines_of(out)) {
    if (line.rfind("store: ", 0) == 0) answers.push_back(line);
  }
  std::sort(answers.begin(), answers.end());
  return answers;
}

// Where each of its descriptors leads.
Lines descriptors_of(pid_t pid) {
  Lines all;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    std::error_code closed;
    all.push_back(std::filesystem::read_symlink(entry.path(), closed).string());
  }
  std::sort(all.begin(), all.end());
  return all;
}

TEST_CASE("a job that never asks for the store has no process for it") {
  const Job here;
  ChildProgram job(here.with({"--nproc_per_node=2"},
                             {"@0parent", "@0env=TORCHELASTIC_USE_AGENT_STORE", "wait"}));
  job.wait_for("waiting ", 2);
  CHECK(store_of(agent_of(job)) == 0);
  CHECK_THAT(job.out(), Contains("TORCHELASTIC_USE_AGENT_STORE=True\n"));
  job.signal(SIGTERM);
  job.wait_all_gone();
}

TEST_CASE("the first connection starts the store's process, which holds sockets and stderr only") {
  const Job here;
  ChildProgram job(here.with({"--nproc_per_node=4"}, {"@0parent", "ask-store", "wait"}));
  job.wait_for("waiting ", 4);
  CHECK(answers_in(job.out()) == Lines{"store: 1", "store: 2", "store: 3", "store: 4"});
  const pid_t store = store_of(agent_of(job));
  REQUIRE(store > 0);
  for (const std::string& place : descriptors_of(store)) {
    const bool known = place.rfind("socket:", 0) == 0 || place == "anon_inode:[eventpoll]" ||
                       place.rfind("pipe:", 0) == 0 || place.empty();
    CHECK((known ? "" : place) == "");
  }
  job.signal(SIGTERM);
  job.wait_all_gone();
}

TEST_CASE("each round has a store of its own, on a new port or on that of the user's choice",
          "[waits]") {
  for (const bool fixed : {false, true}) {
    const Job here;
    Lines options{"--max_restarts=2"};
    if (fixed) options.push_back("--master-port=" + std::to_string(unused_port()));
    const auto job = run_to_end(
        here.with(options, {"ask-store", "child", "daemon", "#0exit=1", "#1kill-self=KILL"}));
    CHECK(job.exit == 0);
    CHECK(answers_in(job.out) == Lines{"store: 1", "store: 1", "store: 1"});
    CHECK(lines_of(job.err).size() == 2);  // the restarts: replacing the store is not logged
  }
}

TEST_CASE("a store that is killed fails the round: grace, restart, a fresh store") {
  const Job here;
  ChildProgram job(
      here.with({"--nproc_per_node=2", "--max_restarts=1"},
                {"parent", "@0ask-store", "trap-exit=0", "env=DDP_LAST_FAILURE", "#0wait"}));
  job.wait_for("waiting ", 2);
  const pid_t first = store_of(agent_of(job));
  REQUIRE(first > 0);
  ::kill(first, SIGKILL);
  job.wait_for("got SIGTERM", 2);
  CHECK(job.wait_exit() == 0);
  CHECK(answers_in(job.out()) == Lines{"store: 1", "store: 1"});
  CHECK_THAT(job.out(), Contains(R"(DDP_LAST_FAILURE={"rank":-1,"cause":"SIGKILL",)"));
  CHECK(job.err_lines() ==
        Lines{"ddp-run: the workers' store (pid " + std::to_string(first) +
              ") ended: killed by SIGKILL; its contents are lost; restart 1 of 1"});
}

TEST_CASE("a store that is killed in a job without restarts is the cause in its result") {
  const Job here;
  const std::string file = here.tmp / "result.json";
  ChildProgram job(here.with({"--nproc_per_node=2", "--result-json=" + file},
                             {"parent", "@0ask-store", "trap-exit=0", "wait"}));
  job.wait_for("waiting ", 2);
  ::kill(store_of(agent_of(job)), SIGKILL);
  CHECK(job.wait_exit() == 1);
  CHECK_THAT(job.err(), Contains("ddp-run: the job failed; first failure: the workers' store"));
  const auto result = nlohmann::json::parse(text_of(file));
  CHECK(result["outcome"] == "failed");
  CHECK(result["failures"][0]["rank"].is_null());
  CHECK_THAT(result["failures"][0]["cause"].get<std::string>(), StartsWith("the workers' store"));
}

TEST_CASE("the store's process gets none of the job's signals and ends with it") {
  const Job here;
  auto options =
      here.with({}, {"parent", "ask-store", "note=USR1", "note=CONT", "trap-exit=0", "wait"});
  options.own_group = true;
  ChildProgram job(options);
  job.wait_for("waiting");
  const pid_t store = store_of(agent_of(job));
  REQUIRE(store > 0);
  job.signal(SIGUSR1);
  job.wait_for("got SIGUSR1");
  ::kill(-job.pid(), SIGCONT);
  job.wait_for("got SIGCONT");
  CHECK(store_of(agent_of(job)) == store);
  ::kill(-job.pid(), SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
  job.wait_all_gone(kSoon);
}

TEST_CASE("SIGKILL of ddp-run or of its agent ends the store's process") {
  for (const bool agent : {false, true}) {
    const Job here;
    ChildProgram job(here.with({"--nproc_per_node=2"}, {"ask-store", "parent", "daemon", "wait"}));
    job.wait_for("waiting", 2);
    ::kill(agent ? agent_of(job) : job.pid(), SIGKILL);
    job.wait_all_gone(kSoon);  // it holds ddp-run's stderr
  }
}

// ---- the store and supervision ----------------------------------------------------------------

double cpu_seconds(pid_t pid) {
  double nanoseconds = 0;
  std::ifstream("/proc/" + std::to_string(pid) + "/schedstat") >> nanoseconds;
  return nanoseconds / 1e9;
}

/// Clients that ask for as much as they can read, until the store hangs up.
class Flood {
 public:
  Flood(int clients, int port) {
    for (int i = 0; i < clients; ++i) threads_.emplace_back([this, port] { ask(port); });
  }
  ~Flood() { wait_for_end(); }
  long answers() const { return answers_; }
  void wait_for(long answers) const {
    while (answers_ < answers) ::usleep(1000);
  }
  void wait_for_end() {
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void ask(int port) {
    const std::string value(4096, 'x');
    const int fd = connected_to(port);
    std::string batch =
        launch::encode({launch::QueryType::kValidate, {}, {}, launch::kTcpStoreMagic}) +
        launch::encode({launch::QueryType::kSet, {"key"}, {value}, 0});
    constexpr int kBatch = 64;
    const std::string get = launch::encode({launch::QueryType::kGet, {"key"}, {}, 0});
    for (int i = 0; i < kBatch; ++i) batch += get;
    std::string answer(kBatch * (sizeof(std::uint64_t) + value.size()), '\0');
    bool there = true;
    while (there) {
      there = ::send(fd, batch.data(), batch.size(), MSG_NOSIGNAL) > 0 &&
              ::recv(fd, answer.data(), answer.size(), MSG_WAITALL) ==
                  static_cast<ssize_t>(answer.size());
      batch.erase(0, batch.find(get));
      if (there) answers_ += kBatch;
    }
    ::close(fd);
  }

  std::atomic<long> answers_{0};
  std::vector<std::thread> threads_;
};

int value_of(ChildProgram& job, const std::string& name) {
  return std::stoi(job.wait_for(name + "=").substr(name.size() + 1));
}

TEST_CASE("a flood of requests takes no time of the agent's, which handles a failure meanwhile") {
  const Job here;
  ChildProgram job(here.with({"--nproc_per_node=2", "--max_restarts=1"},
                             {"@0env=MASTER_PORT", "@0parent", "@0ask-store", "trap-exit=0",
                              "#0@0wait", "#0hold=USR1", "#0kill-self=KILL"}));
  const pid_t failing = pid_after(job, "holding");
  job.wait_for("waiting ");
  const pid_t agent = agent_of(job), store = store_of(agent);
  REQUIRE(store > 0);
  const double before = cpu_seconds(agent), store_before = cpu_seconds(store);
  Flood flood(4, value_of(job, "MASTER_PORT"));
  flood.wait_for(50'000);
  CHECK(cpu_seconds(agent) - before < (cpu_seconds(store) - store_before) / 10);
  ::kill(failing, SIGUSR1);
  job.wait_for("got SIGTERM");
  // Only the end of the round's store ends the flood: it lasted all through the above.
  flood.wait_for_end();
  CHECK(job.wait_exit() == 0);
  CHECK(answers_in(job.out()) == Lines{"store: 1", "store: 1"});
  REQUIRE(job.err_lines().size() == 1);
  CHECK_THAT(job.err_lines()[0],
             StartsWith("ddp-run: rank 1 ") && Contains("killed by SIGKILL; restart 1 of 1"));
}

TEST_CASE("a store that does not answer at all holds up neither a restart nor the end") {
  const Job here;
  ChildProgram job(here.with({"--nproc_per_node=2", "--max_restarts=1"},
                             {"parent", "ask-store", "trap-exit=0", "wait"}));
  const auto stop_store = [&](int times) {
    job.wait_for("waiting ", times);
    const pid_t store = store_of(agent_of(job));
    REQUIRE(store > 0);
    ::kill(store, SIGSTOP);
  };
  stop_store(2);
  ::kill(std::stoi(job.out_lines().back().substr(8)), SIGKILL);
  stop_store(4);
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
  job.wait_all_gone(kSoon);
}

// ---- who serves the store ---------------------------------------------------------------------

std::string who_serves(const Lines& options, const char* disable = nullptr) {
  const Job here;
  auto job = here.with(options, {"env=TORCHELASTIC_USE_AGENT_STORE"});
  if (disable) {
    job.set["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = disable;
    job.unset.clear();
  }
  const auto done = run_to_end(job);
  return done.exit == 0 ? lines_of(done.out).at(0).substr(29) : done.err;
}

TEST_CASE("who serves the store: as torchrun decides") {
  const std::string fixed = "--master-port=" + std::to_string(unused_port());
  CHECK(who_serves({}) == "True");
  CHECK(who_serves({"--standalone"}) == "True");
  CHECK(who_serves({fixed}) == "True");
  CHECK(who_serves({}, "1") == "False");
  CHECK(who_serves({"--standalone", fixed}, "1") == "False");
  CHECK(who_serves({}, "0") == "True");
  CHECK(who_serves({fixed}, "1") == "True");  // torchrun's static rendezvous does not ask
}

TEST_CASE("fifty restarts with a store leave neither a descriptor nor a process behind") {
  const Job here;
  const auto job = run_to_end(
      here.with({"--max_restarts=50", "--healthy-after=0.001"},
                {"ask-store", "#1launcher-state", "#50launcher-state", "#50exit=0", "exit=1"}));
  CHECK(job.exit == 0);
  CHECK(answers_in(job.out) == Lines(51, "store: 1"));
  std::vector<int> descriptors;
  for (const auto& line : lines_of(job.out)) {
    if (line.rfind("agent rss", 0) == 0)
      descriptors.push_back(std::stoi(line.substr(line.find("fds ") + 4)));
  }
  REQUIRE(descriptors.size() == 2);
  // The agent may not have closed yet what the store's process got when it was forked.
  CHECK(descriptors[1] <= descriptors[0] + 8);
}

}  // namespace
}  // namespace ddp::test
