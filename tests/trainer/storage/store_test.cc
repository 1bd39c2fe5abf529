// Against real servers: what goes in comes out.
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include <thread>
#include "tests/support/catch.h"

#include "tests/trainer/config/test_files.h"
#include "tests/trainer/storage/store_server.h"

namespace ddp::train {
namespace {

using test::read_file;
using test::StoreServer;
using test::write_file;

/// Bytes without a period that a part's length could hide.
std::string bytes(std::size_t size) {
  std::string text(size, '\0');
  uint32_t state = 1;
  for (char& c : text) {
    state = state * 1664525U + 1013904223U;
    c = static_cast<char>(state >> 24U);
  }
  return text;
}

constexpr std::size_t kPart = 10 << 20;

void check_round_trip(const StoreServer& server) {
  const test::TestFolder here;
  const auto folder = server.open("runs/7");
  CHECK(folder->list().empty());
  const std::size_t sizes[] = {0, 1, 5000, kPart, 5 * kPart + 12'345};
  int n = 0;
  for (const std::size_t size : sizes) {
    const std::string text = bytes(size);
    const std::string name = fmt::format("s{}", n++);
    write_file("up", text);
    folder->upload("up", name);
    folder->download(name, "down");
    CHECK((read_file("down") == text));
  }
  const auto entries = folder->list();
  REQUIRE(entries.size() == std::size(sizes));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    CHECK(entries[i].name == fmt::format("s{}", i));
    CHECK(entries[i].size == static_cast<int64_t>(sizes[i]));
  }

  write_file("up", "replaced");
  folder->upload("up", "s4");
  folder->download("s4", "down");
  CHECK(read_file("down") == "replaced");

  for (std::size_t i = 0; i < std::size(sizes); ++i) folder->remove(fmt::format("s{}", i));
  folder->remove("s0");  // gone already
  CHECK(folder->list().empty());
}

void check_missing(const StoreServer& server, const std::string& scheme) {
  const test::TestFolder here;
  const auto folder = server.open("missing");
  write_file("down", "before");
  const auto failure = [](const auto& action) {
    try {
      action();
    } catch (const RemoteError& error) {
      return error.failure();
    }
    throw std::runtime_error("no error");
  };
  CHECK(failure([&] { folder->download("none", "down"); }) == RemoteFailure::kMissing);
  CHECK(read_file("down") == "before");
  CHECK(failure([&] { folder->upload("none", "n"); }) == RemoteFailure::kLocal);
  write_file("small", "x");
  folder->upload("small", "small");
  CHECK(failure([&] { folder->download("small", "no/folder/down"); }) == RemoteFailure::kLocal);

  std::stop_source stop;
  stop.request_stop();
  CHECK(failure([&] { folder->list(stop.get_token()); }) == RemoteFailure::kStopped);

  const auto nowhere = open_remote_folder(scheme + "://nobucket/x");
  const std::string line = test::error_of<RemoteError>([&] { nowhere->upload("small", "small"); });
  CHECK(line.find(scheme + "://nobucket/x/small: ") == 0);
  CHECK(line.find("create the bucket or fix its name") != std::string::npos);
  CHECK(line.find('\n') == std::string::npos);
  CHECK(failure([&] { nowhere->upload("small", "small"); }) == RemoteFailure::kRefused);
  CHECK(failure([&] { static_cast<void>(nowhere->list()); }) == RemoteFailure::kRefused);
}

/// Asks to stop when the upload has sent its first parts: the bytes read tell.
void check_stopped_upload(const StoreServer& server) {
  const test::TestFolder here;
  const auto folder = server.open("stopped");
  write_file("old", "old");
  folder->upload("old", "s");
  // A pipe as the local file: what is not written into it yet cannot have been sent.
  REQUIRE(::mkfifo("pipe", 0600) == 0);
  std::stop_source stop;
  std::jthread writer([&] {
    std::ofstream pipe("pipe", std::ios::binary);
    pipe << bytes(5 * kPart) << std::flush;
    stop.request_stop();
    pipe << bytes(2 * kPart) << std::flush;
  });
  ::signal(SIGPIPE, SIG_IGN);
  CHECK_THROWS_AS(folder->upload("pipe", "s", stop.get_token()), RemoteError);
  writer.join();
  const auto entries = folder->list();
  REQUIRE(entries.size() == 1);
  CHECK(entries[0].size == 3);
}

/// By one server, which takes seconds to start.
void check_store(const std::string& kind) {
  const StoreServer server(kind);
  check_round_trip(server);
  check_missing(server, kind);
  check_stopped_upload(server);
}

TEST_CASE("S3 returns files byte for byte, names what is missing, keeps the old on a stop") {
  check_store("s3");
}

TEST_CASE("Google's store returns files byte for byte, names what is missing, keeps the old") {
  check_store("gs");
}

}  // namespace
}  // namespace ddp::train
