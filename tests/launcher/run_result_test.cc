// What a job leaves in --result-json.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/close_range.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "launcher/base/system/descriptors.h"
#include "tests/launcher/ddp_run.h"
#include "tests/support/catch.h"

namespace ddp::test {
namespace {

using Catch::Contains;

TEST_CASE("the result file says what became of each worker") {
  const TempFolder folder;
  const std::string file = folder / "result.json";
  CHECK(run_to_end(stub_job(folder,
                            {"--nproc_per_node=2", "--max_restarts=1", "--result-json=" + file},
                            {"@1err=no paper\\n", "@1exit=7", "wait"}))
            .exit == 7);
  const auto result = nlohmann::json::parse(std::ifstream(file));
  CHECK(result["outcome"] == "failed");
  CHECK(result["exit_code"] == 7);
  CHECK(result["restarts"] == 1);
  CHECK(result["failures"][0]["rank"] == 1);
  CHECK(result["failures"][0]["stderr"] == "no paper\n");
  CHECK(result["workers"][0]["state"] == "stopped");
  CHECK(result["workers"][0]["signal"] == SIGTERM);
  CHECK(result["workers"][1]["exit_code"] == 7);
  CHECK(result["workers"][1]["max_rss_kib"] > 0);
  CHECK_THAT(run_to_end(stub_job(folder, {"--result-json=/no/such/folder/x"}, {"exit=0"})).err,
             Catch::StartsWith("error: --result-json="));
}

TEST_CASE("the result file has the exit code of a run whose output was lost") {
  const TempFolder folder;
  const std::string file = folder / "result.json";
  const auto job = stub_job(folder, {"--result-json=" + file}, {"err=lost\\n", "exit=0"});
  CHECK(run_to_end(in_shell(R"(exec "$@" 2> /dev/full)", job)).exit == 1);
  CHECK(nlohmann::json::parse(std::ifstream(file))["exit_code"] == 1);
}

TEST_CASE(
    "the cause is written to a pipe or device that an enclosing launcher names, not over it") {
  const TempFolder folder;
  const std::string pipe = folder / "cause";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const launch::Descriptor reader(::open(pipe.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  ChildOptions job = stub_job(folder, {}, {R"(error-file={"message":"no paper"})", "exit=7"});
  job.argv.insert(job.argv.begin(), {"env", "TORCHELASTIC_ERROR_FILE=" + pipe});
  CHECK(run_to_end(job).exit == 7);
  char text[4096]{};
  CHECK(::read(reader.get(), text, sizeof text - 1) > 0);
  CHECK_THAT(text, Contains("no paper"));
}

struct Outcome {
  int exit = 0;
  nlohmann::json result;
};

// Where the result of an earlier run lies.
Outcome run_with_result(ChildOptions options, const TempFolder& folder) {
  const std::string file = folder.write("result.json", R"({"outcome":"succeeded"})");
  options.argv.insert(options.argv.begin() + 1, "--result-json=" + file);
  const int exit = run_to_end(options).exit;
  return {exit, nlohmann::json::parse(text_of(file))};
}

TEST_CASE("no run leaves the result of an earlier one behind") {
  const TempFolder folder;
  ChildOptions options = stub_job(folder, {}, {});
  options.argv = {kDdpRun, "/no/such/program"};
  const Outcome missing = run_with_result(options, folder);
  CHECK(missing.exit == 127);
  CHECK(missing.result["outcome"] == "failed");
  CHECK(missing.result["exit_code"] == 127);
  CHECK_THAT(missing.result["error"].get<std::string>(), Contains("/no/such/program"));
  options.argv[1] = folder.write("no_interpreter", "#!/no/such/interpreter\n", true);
  const Outcome broken = run_with_result(options, folder);
  CHECK(broken.exit == 127);
  CHECK_THAT(broken.result["error"].get<std::string>(), Contains("cannot execute"));
}

TEST_CASE("the result is written though the agent was killed, and none is there before the end") {
  const TempFolder folder;
  const std::string file = folder.write("result.json", R"({"outcome":"succeeded"})");
  ChildProgram job(stub_job(folder, {"--result-json=" + file}, {"parent", "wait"}));
  const pid_t agent = agent_of(job);
  job.wait_for("waiting ");
  CHECK_FALSE(std::filesystem::exists(file));
  ::kill(agent, SIGKILL);
  CHECK(job.wait_exit() == 128 + SIGKILL);
  const auto result = nlohmann::json::parse(text_of(file));
  CHECK(result["outcome"] == "failed");
  CHECK(result["exit_code"] == 128 + SIGKILL);
  CHECK_THAT(result["error"].get<std::string>(), Contains("agent process"));
}

TEST_CASE("an agent without a descriptor to spare still writes what has gone wrong") {
  const TempFolder folder;
  const std::string file = folder.path() + "/result.json";
  // What this process has inherited would leave the agent higher numbers than the limit allows.
  REQUIRE(::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0);
  ChildProgram job(
      stub_job(folder, {"--result-json=" + file, "--nproc_per_node=2"}, {"parent", "wait"}));
  const pid_t worker = pid_after(job, "waiting", 2);
  const rlimit few{4, 4};
  REQUIRE(::prlimit(agent_of(job), RLIMIT_NOFILE, &few, nullptr) == 0);
  ::kill(worker, SIGKILL);
  CHECK(job.wait_exit() == 1);
  CHECK_THAT(nlohmann::json::parse(text_of(file))["error"].get<std::string>(),
             Contains("cannot wait for the workers"));
}

TEST_CASE("a restart that cannot be executed is a failed round with a result") {
  const TempFolder folder;
  ChildOptions options = stub_job(folder, {"--max_restarts=2"}, {});
  options.argv[2] = folder.write("once", "#!/bin/sh\nmv \"$0\" \"$0.away\"\nexit 1\n", true);
  const Outcome once = run_with_result(options, folder);
  CHECK(once.exit == 127);
  CHECK(once.result["restarts"] == 2);
  CHECK(once.result["failures"][0]["rank"].is_null());
  CHECK_THAT(once.result["failures"][0]["cause"].get<std::string>(),
             Contains("cannot restart the workers: cannot execute"));
}

}  // namespace
}  // namespace ddp::test
