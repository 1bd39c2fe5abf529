// What can be seen of a job from outside: /health, /metrics, the event log.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include "tests/support/catch.h"

#include "launcher/report/http_server.h"
#include "tests/launcher/ddp_run.h"
#include "tests/support/loopback.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Catch::EndsWith;
using Catch::StartsWith;
using nlohmann::json;

// Sends the bytes and reads until the other side closes.
std::string ask(int port, const std::string& request) {
  const int fd = connected_to(port);
  REQUIRE(::send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t got; (got = ::recv(fd, buffer, sizeof buffer, 0)) > 0;) {
    answer.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(fd);
  return answer;
}

std::string get(int port, const std::string& path) {
  return ask(port, "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

int port_in(const std::string& line) { return std::stoi(line.substr(line.rfind(':') + 1)); }

TEST_CASE("HTTP probes and scrapers are told of the running job") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--nproc_per_node=2", "--health-port=0", "--rdzv-id=a\"b"},
                            {"beat=step=3", "wait"}));
  const int port = port_in(job.wait_for("/health and /metrics: http://127.0.0.1:"));
  job.wait_for("waiting ", 2);
  const std::string health = get(port, "/health?full=1");
  CHECK_THAT(health, StartsWith("HTTP/1.1 200 OK\r\n"));
  const json told = json::parse(health.substr(health.find("\r\n\r\n")));
  CHECK(told["status"] == "running");
  REQUIRE(told["workers"].size() == 2);
  CHECK(told["workers"][1]["rank"] == 1);
  CHECK(told["workers"][1]["heartbeat"] == "step=3");
  CHECK(told["workers"][1]["silence"].get<double>() >= 0);
  CHECK_THAT(get(port, "/metrics"), Contains("ddp_run_info{run_id=\"a\\\"b\",host=") &&
                                        Contains("ddp_run_workers{state=\"running\"} 2\n") &&
                                        Contains("# TYPE ddp_run_restarts_total counter"));
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

TEST_CASE("/health answers 200 while workers are stopped", "[waits]") {
  const TempFolder tmp;
  ChildProgram job(stub_job(
      tmp, {"--nproc_per_node=2", "--health-port=0", "--max-restarts=1", "--shutdown-timeout=10"},
      {"@0note=TERM", "print=up", "@1hold=USR1", "@1exit=3", "@0wait"}));
  const int port = port_in(job.wait_for("/metrics: http"));
  job.wait_for("up", 2);
  ::kill(pid_after(job, "holding"), SIGUSR1);
  job.wait_for("got SIGTERM");
  const std::string health = get(port, "/health");
  CHECK_THAT(health, StartsWith("HTTP/1.1 200 OK\r\n"));
  CHECK(json::parse(health.substr(health.find("\r\n\r\n")))["status"] == "stopping");
  CHECK_THAT(get(port, "/metrics"), Contains("ddp_run_healthy 0\n"));
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

TEST_CASE("what a worker has left as metrics.prom stands at the end of /metrics") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--health-port=0"}, {"env=DDP_SHM_DIR", "wait"}));
  const int port = port_in(job.wait_for("/metrics: http"));
  const std::string folder =
      job.wait_for("DDP_SHM_DIR=").substr(std::string("DDP_SHM_DIR=").size());
  CHECK_THAT(get(port, "/metrics"), !Contains("trainer_loss"));
  const std::string file = folder + "/metrics.prom";
  std::ofstream(file) << "trainer_loss{split=\"train\"} 2.5";
  CHECK_THAT(get(port, "/metrics"), EndsWith("\ntrainer_loss{split=\"train\"} 2.5\n"));
  // A link, a pipe or a heap of data is none of a worker's metrics.
  const std::string elsewhere = tmp.write("elsewhere", "secret 1\n");
  std::filesystem::remove(file);
  std::filesystem::create_symlink(elsewhere, file);
  CHECK_THAT(get(port, "/metrics"), !Contains("secret"));
  std::filesystem::remove(file);
  REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
  CHECK_THAT(get(port, "/metrics"), StartsWith("HTTP/1.1 200"));
  std::filesystem::remove(file);
  std::ofstream(file) << std::string(300'000, 'x');
  CHECK_THAT(get(port, "/metrics"), !Contains("xxx"));
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

TEST_CASE("what is no GET gets an answer, and who says nothing hinders nobody") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--health-port=127.0.0.1:0"}, {"wait"}));
  const int port = port_in(job.wait_for("/metrics: http"));
  CHECK_THAT(ask(port, "POST /health HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405"));
  CHECK_THAT(ask(port, "\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  CHECK_THAT(ask(port, std::string(9000, 'x')), StartsWith("HTTP/1.1 400"));
  CHECK_THAT(get(port, "/nothing"), StartsWith("HTTP/1.1 404"));
  CHECK(ask(port, "HEAD /health HTTP/1.1\r\n\r\n").find("\r\n\r\n{") == std::string::npos);
  std::vector<int> silent;
  for (int i = 0; i < 40; ++i) {
    silent.push_back(connected_to(port));
  }
  CHECK_THAT(get(port, "/health"), StartsWith("HTTP/1.1 200"));
  for (const int fd : silent) ::close(fd);
  job.signal(SIGINT);
  CHECK(job.wait_exit() == 128 + SIGINT);
}

TEST_CASE("without a descriptor for it a probe is refused at once, and the job goes on") {
  const TempFolder tmp;
  ChildProgram job(
      in_shell("ulimit -n 28; exec \"$@\"", stub_job(tmp, {"--health-port=0"}, {"wait"})));
  const int port = port_in(job.wait_for("/metrics: http"));
  job.wait_for("waiting ");
  std::vector<pollfd> silent;  // half a request gets no answer
  for (int i = 0; i < 20; ++i) silent.push_back({connected_to(port), POLLIN, 0});
  CHECK(::poll(silent.data(), silent.size(), 30'000) > 0);
  for (const pollfd& connection : silent) ::close(connection.fd);
  // Until the launcher has noticed that they are closed, this one is refused as well.
  std::string answer;
  wait_until([&] { return !(answer = get(port, "/health")).empty(); });
  CHECK_THAT(answer, StartsWith("HTTP/1.1 200"));
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

// As the agent's loop does; returns how often the server has woken it.
int serve_until(launch::HttpServer& server, const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  int wakes = 0;
  while (!done() && std::chrono::steady_clock::now() < deadline) {
    std::vector<pollfd> fds;
    server.add_poll_fds(fds);
    const auto due = server.deadline();
    const bool ready = ::poll(fds.data(), fds.size(), 50) > 0;
    if (!ready && !(due && std::chrono::steady_clock::now() >= *due)) continue;
    server.handle(fds);
    ++wakes;
  }
  return wakes;
}

TEST_CASE("a probe that can neither be taken nor refused waits, and nothing spins meanwhile") {
  constexpr rlim_t kLimit = 100;
  std::vector<int> all;  // no number below the limit is left, not even that of the spare one
  while (all.empty() || all.back() < static_cast<int>(kLimit))
    all.push_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  launch::HttpServer server({"127.0.0.1", 0}, [](const std::string&) {
    return launch::HttpAnswer{"200 OK", "text/plain", "here\n"};
  });
  pollfd probe{connected_to(server.port()), POLLIN, 0};
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  REQUIRE(::send(probe.fd, request.data(), request.size(), MSG_NOSIGNAL) > 0);
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{kLimit, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  const auto half_a_second = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  const int wakes =
      serve_until(server, [&] { return std::chrono::steady_clock::now() >= half_a_second; });
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(wakes <= 12);
  CHECK(::poll(&probe, 1, 0) == 0);
  serve_until(server, [&] { return ::poll(&probe, 1, 0) == 1; });
  char answer[16] = {};
  CHECK(::recv(probe.fd, answer, 15, MSG_DONTWAIT) == 15);
  CHECK_THAT(answer, StartsWith("HTTP/1.1 200 OK"));
  ::close(probe.fd);
  for (const int fd : all) ::close(fd);
}

TEST_CASE("a port that is taken is said before any worker starts") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--health-port=0"}, {"wait"}));
  const std::string port = std::to_string(port_in(job.wait_for("/metrics: http")));
  const Finished second = run_to_end(stub_job(tmp, {"--health-port=" + port}, {"print=started"}));
  CHECK(second.exit == 2);
  CHECK(second.out.empty());
  CHECK_THAT(second.err, Contains("error: --health-port=127.0.0.1:" + port + ": "));
  job.signal(SIGKILL);
}

TEST_CASE("the event log is torchelastic's, with real times") {
  const TempFolder tmp;
  const Finished job = run_to_end(
      stub_job(tmp, {"--events=" + tmp / "events", "--max-restarts=1", "--role=r"}, {"#0exit=3"}));
  CHECK(job.exit == 0);
  std::ifstream file(tmp / "events");
  std::vector<std::string> states;
  for (std::string line; std::getline(file, line);) {
    const json event = json::parse(line);
    states.push_back(event["metadata"]["state"]);
    CHECK(event["name"] == "torchelastic.worker.status." + states.back());
    CHECK(event["timestamp"].get<long long>() > 1'600'000'000'000);
    CHECK(event["metadata"]["role"] == "r");
    if (event["source"] == "WORKER" && states.back() == "FAILED") {
      CHECK(json::parse(event["metadata"]["metadata"].get<std::string>())["exit_code"] == 3);
      CHECK(event["metadata"]["global_rank"] == 0);
    }
  }
  CHECK(states == std::vector<std::string>{"RENDEZVOUS", "START", "FAILED", "RENDEZVOUS", "START",
                                           "SUCCEEDED", "SUCCEEDED"});
}

TEST_CASE("events go to stderr with --events=console, or with torchrun's option for that") {
  const TempFolder tmp;
  for (const char* option : {"--events=console", "--event-log-handler=console"}) {
    const Finished job = run_to_end(stub_job(tmp, {option}, {}));
    CHECK_THAT(job.err, StartsWith("{\"") && Contains("torchelastic.worker.status.SUCCEEDED"));
  }
}

TEST_CASE("an event log that is no file is refused, and nothing waits for it") {
  const TempFolder tmp;
  REQUIRE(::mkfifo((tmp / "pipe").c_str(), 0600) == 0);
  for (const std::string& place : {tmp / "pipe", std::string("/dev/full"), tmp.path()}) {
    const Finished job = run_to_end(stub_job(tmp, {"--events=" + place}, {"print=started"}));
    CHECK(job.exit == 2);
    CHECK(job.out.empty());
    CHECK_THAT(job.err, StartsWith("error: --events=" + place + ": "));
  }
}

TEST_CASE("a symbolic link, as /dev/stdout is one, is not replaced by the result") {
  const TempFolder tmp;
  const std::string target = tmp.write("target", "kept");
  const std::string link = tmp / "link";
  std::filesystem::create_symlink(target, link);
  const Finished job = run_to_end(stub_job(tmp, {"--result-json=" + link}, {"exit=0"}));
  CHECK(job.exit == 2);
  CHECK_THAT(job.err, StartsWith("error: --result-json=" + link + ": is a symbolic link"));
  CHECK(std::filesystem::is_symlink(link));
  CHECK(text_of(target) == "kept");
}

TEST_CASE("a result that cannot be written is said, and the job's exit code stays") {
  const TempFolder tmp;
  CHECK(run_to_end(stub_job(tmp, {"--result-json=" + tmp.path()}, {})).exit == 2);
  const Finished job = run_to_end(stub_job(tmp, {"--result-json=/dev/shm/../full/x"}, {"exit=3"}));
  CHECK(job.exit == 2);  // found out before the job
  tmp.write("there/x", "");
  ChildProgram running(stub_job(tmp, {"--result-json=" + tmp / "there/result"}, {"wait"}));
  running.wait_for("waiting ");
  std::filesystem::remove_all(tmp / "there");
  running.signal(SIGTERM);
  CHECK(running.wait_exit() == 128 + SIGTERM);
  CHECK_THAT(running.err(), Contains("error: --result-json="));
  CHECK(running.err().find("result-json") == running.err().rfind("result-json"));  // said once
}

}  // namespace
}  // namespace ddp::test
