// The workers' store that ddp-run has served, with a stub in the place of ddp-store.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include "tests/support/catch.h"

#include "launcher/rendezvous/listening_socket.h"
#include "tests/launcher/ddp_run.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Catch::StartsWith;
using Lines = std::vector<std::string>;

// A folder with ddp-run and, beside it, the stub as ddp-store.
struct Installed {
  TempFolder folder;
  std::string log = folder / "log";

  explicit Installed(bool with_store = true) {
    std::filesystem::copy_file(kDdpRun, folder / "ddp-run");
    if (with_store) std::filesystem::copy_file(DDP_STUB_STORE, folder / "ddp-store");
    std::filesystem::create_directory(folder / "tmp");
  }
  ChildOptions job(const Lines& options, const Lines& actions) const {
    ChildOptions child = stub_job(folder, options, actions);
    child.argv[0] = folder / "ddp-run";
    child.set["TMPDIR"] = folder / "tmp";
    child.set["STUB_STORE_LOG"] = log;
    child.unset = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "STUB_STORE"};
    return child;
  }
  Lines logged() const {
    std::ostringstream text;
    text << std::ifstream(log).rdbuf();
    return lines_of(text.str());
  }
};

std::string free_port() { return std::to_string(launch::ListeningSocket("127.0.0.1", 0).port()); }

pid_t store_pid(const std::string& line) {
  int number = 0, pid = 0;
  REQUIRE(std::sscanf(line.c_str(), "store %d of %d", &number, &pid) == 2);
  return pid;
}

TEST_CASE("a job that never asks for the store starts no server") {
  const Installed here;
  const auto job =
      run_to_end(here.job({"--nproc_per_node=2"}, {"@0env=TORCHELASTIC_USE_AGENT_STORE", "@1fds"}));
  CHECK(job.exit == 0);
  CHECK(job.err.empty());
  CHECK_THAT(job.out, Contains("TORCHELASTIC_USE_AGENT_STORE=True\n") && Contains("fds 0 1 2\n"));
  CHECK(here.logged().empty());
}

TEST_CASE("the first connection starts the store's server, with descriptors 0, 1 and 2 only") {
  const Installed here;
  const auto job = run_to_end(here.job({"--nproc_per_node=4"}, {"ask-store"}));
  CHECK(job.exit == 0);
  CHECK(job.err.empty());
  const auto answers = lines_of(job.out);
  REQUIRE(answers.size() == 4);
  for (const auto& answer : answers) CHECK(answer == answers[0]);
  CHECK(here.logged() == Lines{"started with 0 1 2"});
}

TEST_CASE("each round has a store of its own from a server that lives through all") {
  const Installed here;
  const auto job = run_to_end(here.job(
      {"--max_restarts=2"}, {"ask-store", "child", "daemon", "#0exit=1", "#1kill-self=KILL"}));
  CHECK(job.exit == 0);
  Lines answers;
  for (const auto& line : lines_of(job.out)) {
    if (line.rfind("store", 0) == 0) answers.push_back(line);
  }
  REQUIRE(answers.size() == 3);
  const std::string server = " of " + std::to_string(store_pid(answers[0]));
  CHECK(answers == Lines{"store 1" + server, "store 2" + server, "store 3" + server});
}

TEST_CASE("on a port of the user's choice each round has a server of its own") {
  const Installed here;
  const auto job = run_to_end(
      here.job({"--max_restarts=1", "--master-port=" + free_port()}, {"ask-store", "#0exit=1"}));
  CHECK(job.exit == 0);
  const auto answers = lines_of(job.out);
  REQUIRE(answers.size() == 2);
  CHECK_THAT(answers[0], StartsWith("store 1 of "));
  CHECK_THAT(answers[1], StartsWith("store 1 of "));
  CHECK(answers[0] != answers[1]);
  CHECK(lines_of(job.err).size() == 1);  // the restart: replacing the server is no event
}

TEST_CASE("a server that is killed fails the round: grace, restart, a fresh server") {
  const Installed here;
  ChildProgram job(here.job({"--nproc_per_node=2", "--max_restarts=1"},
                            {"@0ask-store", "trap-exit=0", "env=DDP_LAST_FAILURE", "#0wait"}));
  job.wait_for("waiting ", 2);
  const pid_t first = store_pid(job.wait_for("store 1 of "));
  ::kill(first, SIGKILL);
  job.wait_for("got SIGTERM", 2);
  CHECK(job.wait_exit() == 0);
  CHECK(store_pid(job.wait_for("store 1 of ", 2)) != first);
  CHECK_THAT(job.out(), Contains(R"(DDP_LAST_FAILURE={"rank":-1,"cause":"SIGKILL",)"));
  CHECK(job.err_lines() ==
        Lines{"ddp-run: the workers' store (ddp-store, pid " + std::to_string(first) +
              ") ended: killed by SIGKILL; its contents are lost; restart 1 of 1"});
}

TEST_CASE("a server that dies while nobody has asked for this round's store harms nobody") {
  const Installed here;
  ChildProgram job(
      here.job({"--max_restarts=1"}, {"#0ask-store", "#0exit=1", "hold=USR1", "ask-store"}));
  const std::string held = job.wait_for("holding ");
  const pid_t first = store_pid(job.out_lines()[0]);
  ::kill(first, SIGKILL);
  while (::kill(first, 0) == 0) ::usleep(1000);  // until ddp-run has seen it
  ::kill(std::stoi(held.substr(8)), SIGUSR1);
  CHECK(job.wait_exit() == 0);
  CHECK(store_pid(job.out_lines().back()) != first);
  CHECK(job.err_lines().size() == 1);  // the restart
}

TEST_CASE("a server that does not work here fails each round, and the result says why") {
  for (const char* how : {"exit", "die"}) {
    const Installed here;
    const std::string file = here.folder / "result.json";
    auto options = here.job({"--nproc_per_node=2", "--max_restarts=2", "--result-json=" + file},
                            {"trap-exit=0", "@0ask-store", "wait"});
    options.unset.clear();
    options.set["STUB_STORE"] = how;
    const auto job = run_to_end(options);
    CHECK(job.exit == 1);
    CHECK_THAT(job.err, Contains("ddp-run: the job failed; first failure: ddp-store, which hosts "
                                 "the workers' store, exited before it served the store") &&
                            Contains("--store=rank0"));
    const auto result = nlohmann::json::parse(text_of(file));
    CHECK(result["outcome"] == "failed");
    CHECK(result["exit_code"] == 1);
    CHECK(result["restarts"] == 2);
    CHECK(result["failures"][0]["rank"].is_null());
    CHECK_THAT(result["failures"][0]["cause"].get<std::string>(), StartsWith("ddp-store, which"));
    CHECK(here.logged().size() == 3);
  }
}

TEST_CASE("a server that cannot be executed fails the round") {
  const Installed here(false);
  here.folder.write("ddp-store", "#!/no/such/interpreter\n", true);
  const auto job = run_to_end(here.job({"--nproc_per_node=2"}, {"@0ask-store", "wait"}));
  CHECK(job.exit == 1);
  CHECK_THAT(job.err, Contains("first failure: ddp-store,") && Contains("cannot be executed"));
}

TEST_CASE("the store's server gets none of the job's signals and ends with it") {
  const Installed here;
  auto options = here.job({}, {"ask-store", "note=USR1", "note=CONT", "trap-exit=0", "wait"});
  options.own_group = true;
  ChildProgram job(options);
  job.wait_for("waiting");
  job.signal(SIGUSR1);
  job.wait_for("got SIGUSR1");
  ::kill(-job.pid(), SIGCONT);
  job.wait_for("got SIGCONT");
  ::kill(-job.pid(), SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
  job.wait_all_gone(kSoon);
  CHECK(here.logged() == Lines{"started with 0 1 2"});
}

TEST_CASE("SIGKILL of ddp-run or of its agent ends the store's server") {
  for (const bool agent : {false, true}) {
    const Installed here;
    ChildProgram job(here.job({"--nproc_per_node=2"}, {"ask-store", "parent", "daemon", "wait"}));
    job.wait_for("waiting", 2);
    const pid_t target = agent ? std::stoi(job.wait_for("parent ").substr(7)) : job.pid();
    ::kill(target, SIGKILL);
    job.wait_all_gone(kSoon);  // the server holds ddp-run's stderr
  }
}

std::string who_serves(const Installed& here, const Lines& options, const char* disable = nullptr) {
  auto job = here.job(options, {"env=TORCHELASTIC_USE_AGENT_STORE"});
  if (disable) {
    job.set["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = disable;
    job.unset.clear();
  }
  const auto done = run_to_end(job);
  return done.exit == 0 ? lines_of(done.out).at(0).substr(29) : done.err;
}

TEST_CASE("who serves the store: as torchrun decides, or as the user says") {
  const Installed here;
  const std::string fixed = "--master-port=" + free_port();
  CHECK(who_serves(here, {}) == "True");
  CHECK(who_serves(here, {"--standalone"}) == "True");
  CHECK(who_serves(here, {fixed}) == "True");
  CHECK(who_serves(here, {}, "1") == "False");
  CHECK(who_serves(here, {"--standalone", fixed}, "1") == "False");
  CHECK(who_serves(here, {}, "0") == "True");
  CHECK(who_serves(here, {fixed}, "1") == "True");  // torchrun's static rendezvous does not ask
  CHECK(who_serves(here, {"--store=agent"}, "1") == "True");
  CHECK(who_serves(here, {"--store=rank0"}) == "False");
}

TEST_CASE("without ddp-store beside ddp-run rank 0 serves the store") {
  const Installed here(false);
  CHECK(who_serves(here, {}) == "False");
  CHECK_THAT(who_serves(here, {"--store=agent"}),
             StartsWith("error: --store=agent: ") && Contains("/ddp-store is missing"));
}

TEST_CASE("fifty restarts with a store leave no descriptor behind") {
  const Installed here;
  const auto job =
      run_to_end(here.job({"--max_restarts=50"}, {"ask-store", "#50fds", "#50exit=0", "exit=1"}));
  CHECK(job.exit == 0);
  const auto lines = lines_of(job.out);
  REQUIRE(lines.size() == 52);
  CHECK_THAT(lines[50], StartsWith("store 51 of "));
  CHECK(lines[51] == "fds 0 1 2");
  CHECK(here.logged().size() == 1);
}

TEST_CASE("three hundred restarts are served by one server", "[long]") {
  const Installed here;
  ChildProgram job(here.job({"--max_restarts=300"}, {"ask-store", "#300exit=0", "exit=1"}));
  job.wait_for("store 301 of ", 1, std::chrono::minutes(3));
  CHECK(job.wait_exit() == 0);
  CHECK(here.logged().size() == 1);
}

}  // namespace
}  // namespace ddp::test
