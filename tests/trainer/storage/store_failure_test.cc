// Against real servers that are away, die, hang, cut and refuse.
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include "tests/support/catch.h"

#include "tests/support/loopback.h"
#include "tests/trainer/config/test_files.h"
#include "tests/trainer/storage/store_server.h"
#include "trainer/storage/remote_mirror.h"

namespace ddp::train {
namespace {

using test::read_file;
using test::StoreServer;
using test::write_file;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

ddp::test::Finished run_client(std::map<std::string, std::string> environment,
                               std::vector<std::string> arguments) {
  ddp::test::ChildOptions child;
  child.argv = {DDP_STORE_CLIENT};
  child.argv.insert(child.argv.end(), arguments.begin(), arguments.end());
  child.set = std::move(environment);
  for (const char* name :
       {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
        "AWS_PROFILE", "STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "SSL_CERT_FILE",
        "CURL_CA_BUNDLE", "AWS_CA_BUNDLE"}) {
    if (child.set.count(name) == 0) child.unset.emplace_back(name);
  }
  return ddp::test::run_to_end(child);
}

std::string long_text(std::size_t size) {
  std::string text;
  text.resize(size, 'x');
  return text;
}

void check_program(const StoreServer& server) {
  write_file("up", long_text(30'000'000));
  const auto result = run_client(server.environment(), {"upload", server.folder("r"), "up", "s"});
  CHECK(result.exit == 0);
  CHECK(result.out == "s 30000000\n");
  CHECK(result.err.empty());
}

TEST_CASE("a program uses S3 by either credentials and ends in peace, with an empty console") {
  const StoreServer server("s3");
  const test::TestFolder here;
  check_program(server);
  write_file("credentials", "[default]\naws_access_key_id = k\naws_secret_access_key = s\n");
  const auto result = run_client({{"AWS_ENDPOINT_URL", server.endpoint()},
                                  {"AWS_SHARED_CREDENTIALS_FILE", here.path("credentials")}},
                                 {"list", server.folder("r")});
  CHECK(result.exit == 0);
  CHECK(result.err.empty());
}

TEST_CASE("a program uses Google Cloud Storage and ends in peace, with nothing on its console") {
  const test::TestFolder here;
  check_program(StoreServer("gs"));
}

TEST_CASE("wrong keys, no keys and a wrong endpoint are one clear line each") {
  const StoreServer server("s3", {"--check-keys"});
  const test::TestFolder here;
  const auto wrong = run_client(server.environment(), {"list", server.folder("r")});
  CHECK(wrong.exit == 10 + static_cast<int>(RemoteFailure::kRefused));
  CHECK(wrong.err.find("error: s3://bucket/r: ") == 0);
  CHECK(wrong.err.find("check AWS_ACCESS_KEY_ID") != std::string::npos);
  CHECK(ddp::test::lines_of(wrong.err).size() == 1);

  const auto start = Clock::now();
  const std::map<std::string, std::string> no_files = {{"AWS_ENDPOINT_URL", server.endpoint()},
                                                       {"HOME", here.str()}};
  const auto none = run_client(no_files, {"list", server.folder("r")});
  CHECK(none.exit == 10 + static_cast<int>(RemoteFailure::kRefused));
  CHECK(none.err ==
        "error: s3://bucket/r: no credentials found; set AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE and ~/.aws/credentials\n");
  const auto google = run_client({{"HOME", here.str()}}, {"list", "gs://bucket/r"});
  CHECK(google.err ==
        "error: gs://bucket/r: no credentials found; set GOOGLE_APPLICATION_CREDENTIALS, or run "
        "'gcloud auth application-default login'\n");
  CHECK(Clock::now() - start < 60s);

  const auto endpoint =
      run_client({{"AWS_ENDPOINT_URL", "localhost:9"}}, {"list", "s3://bucket/r"});
  CHECK(endpoint.exit == 2);
  CHECK(endpoint.err.find("error: AWS_ENDPOINT_URL=localhost:9: not a server") == 0);
}

TEST_CASE("a server is trusted by the certificates of this machine or those given") {
  const test::TestFolder here;
  for (const std::string kind : {"s3", "gs"}) {
    const StoreServer server(kind, {"--tls", here.str()});
    auto environment = server.environment();
    for (auto& [name, value] : environment) {
      if (value.starts_with("http://127.0.0.1")) value.replace(0, 16, "https://localhost");
    }
    const std::vector<std::string> list = {"list", server.folder("r")};
    const auto doubted = run_client(environment, list);
    CAPTURE(kind, doubted.err);
    CHECK(doubted.exit == 10 + static_cast<int>(RemoteFailure::kAway));
    CHECK(doubted.err.find("certificate") != std::string::npos);
    for (const char* variable : {"SSL_CERT_FILE", "AWS_CA_BUNDLE"}) {
      auto trusting = environment;
      trusting[variable] = here.path("cert.pem");
      const auto trusted = run_client(trusting, list);
      CAPTURE(variable, trusted.err);
      CHECK(trusted.exit == 0);
    }
  }
}

TEST_CASE("nobody at the address: an error soon, which is worth another try") {
  const test::TestFolder here;
  const std::string nobody = "http://127.0.0.1:" + std::to_string(ddp::test::unused_port());
  for (const std::string scheme : {"s3", "gs"}) {
    const auto start = Clock::now();
    const auto result = run_client({{"AWS_ENDPOINT_URL", nobody},
                                    {"AWS_ACCESS_KEY_ID", "k"},
                                    {"AWS_SECRET_ACCESS_KEY", "s"},
                                    {"STORAGE_EMULATOR_HOST", nobody}},
                                   {"list", scheme + "://bucket/r"});
    CAPTURE(result.err);
    CHECK(result.exit == 10 + static_cast<int>(RemoteFailure::kAway));
    CHECK(ddp::test::lines_of(result.err).size() == 1);
    CHECK(Clock::now() - start < 90s);
  }
}

TEST_CASE("an object that is cut on its way is an error and no file") {
  const StoreServer server("s3", {"--cut"});
  const test::TestFolder here;
  const auto folder = server.open("x");
  write_file("up", std::string(100'000, 'x'));
  folder->upload("up", "s");
  write_file("down", "before");
  CHECK_THROWS_AS(folder->download("s", "down"), RemoteError);
  CHECK(read_file("down") == "before");
}

/// The server dies while it takes an upload and returns, empty, later.
void check_killed_server(const std::string& kind) {
  StoreServer server(kind);
  const test::TestFolder here;
  std::mutex mutex;
  std::condition_variable told;
  std::vector<std::string> log;
  MirrorOptions options;
  options.schedule = {10ms, 100ms, 2};
  options.log = [&](LogLevel, const std::string& text) {
    const std::lock_guard lock(mutex);
    log.push_back(text);
    told.notify_all();
  };
  const auto wait_for_lines = [&](std::size_t count) {
    std::unique_lock lock(mutex);
    REQUIRE(told.wait_for(lock, 60s, [&] { return log.size() >= count; }));
  };
  RemoteMirror mirror(server.open("x"), options);
  const std::string text = long_text(20'000'000);
  write_file("s1", text);
  write_file("manifest", "s1");
  server.signal(SIGSTOP);  // it has the connection and the first bytes, and no more
  auto start = Clock::now();
  mirror.publish({{"s1", "s1"}}, {"manifest", "manifest"});
  CHECK(Clock::now() - start < 20s);
  CHECK_FALSE(mirror.flush(200ms).empty());
  server.kill();
  wait_for_lines(1);
  CHECK_FALSE(mirror.flush(10ms).empty());
  start = Clock::now();
  write_file("s2", text + "2");
  mirror.publish({{"s2", "s2"}, {"s1", "s1"}}, {"manifest", "manifest"});
  CHECK(Clock::now() - start < 20s);
  server.come_back();
  CHECK(mirror.flush(60s).empty());

  const auto folder = server.open("x");
  const auto entries = folder->list();
  REQUIRE(entries.size() == 3);
  folder->download("s2", "down");
  CHECK((read_file("down") == text + "2"));
  CHECK(mirror.counts().failures > 0);
  wait_for_lines(2);
  const std::lock_guard lock(mutex);
  CHECK(log.size() == 2);
  CHECK(log[0].find("training continues") != std::string::npos);
  CHECK(log[1] == server.folder("x") + ": uploads work again");
}

TEST_CASE("an S3 server that dies during an upload gets all of it when it is back") {
  check_killed_server("s3");
}

TEST_CASE("a Google server that dies during an upload gets all of it when it is back") {
  check_killed_server("gs");
}

TEST_CASE("a program ends soon and in peace while its store hangs") {
  const test::TestFolder here;
  write_file("manifest", "m");
  for (const std::string kind : {"s3", "gs"}) {
    StoreServer server(kind);
    server.signal(SIGSTOP);
    const auto start = Clock::now();
    const auto result = run_client(server.environment(), {"hang", server.folder("x"), "manifest"});
    CAPTURE(kind, result.err);
    CHECK(result.exit == 0);
    CHECK(result.out == "missing 1\n");
    CHECK(result.err.empty());
    CHECK(Clock::now() - start < 90s);
  }
}

}  // namespace
}  // namespace ddp::train
