#include <fmt/format.h>

#include <thread>
#include "tests/support/catch.h"

#include "tests/trainer/config/test_files.h"
#include "tests/trainer/storage/fake_folder.h"
#include "trainer/storage/remote_mirror.h"

namespace ddp::train {
namespace {

using test::write_file;
using namespace std::chrono_literals;
using Lines = std::vector<std::string>;

constexpr RetrySchedule kQuick{1ms, 2ms, 2};
constexpr RetrySchedule kSlow{1ms, 3'600'000ms, 1e9};  // the second retry comes in an hour

/// A mirror over a made-up store, in a folder of its own; log lines are kept.
struct Fixture {
  explicit Fixture(RetrySchedule schedule = kQuick,
                   std::function<bool(const std::string&)> owns = nullptr,
                   std::chrono::milliseconds patience = 20s) {
    MirrorOptions options;
    options.schedule = schedule;
    options.owns = std::move(owns);
    options.log = [this](LogLevel level, const std::string& text) {
      const std::lock_guard lock(lines_mutex);
      lines.push_back(std::string(level == LogLevel::kInfo      ? "INFO "
                                  : level == LogLevel::kWarning ? "WARNING "
                                                                : "ERROR ") +
                      text);
    };
    options.patience = patience;
    mirror = std::make_unique<RemoteMirror>(std::make_unique<test::FakeFolder>(store), options);
  }
  ~Fixture() {
    mirror.reset();
    store->set([&] { store->held = false; });
  }

  /// Writes `names` and a manifest that lists them, and publishes all.
  void publish(const Lines& names) const {
    std::vector<MirroredFile> files;
    std::string manifest;
    for (const std::string& name : names) {
      if (!std::filesystem::exists(name)) write_file(name, "content of " + name);
      files.push_back({name, name});
      manifest += name + "\n";
    }
    // As AtomicFile does: a new file under the old name.
    std::filesystem::remove("manifest");
    write_file("manifest", manifest);
    mirror->publish(files, {"manifest", "manifest"});
  }
  Lines log() {
    const std::lock_guard lock(lines_mutex);
    return lines;
  }

  test::TestFolder folder;
  std::shared_ptr<test::FakeStore> store = std::make_shared<test::FakeStore>();
  std::mutex lines_mutex;
  Lines lines;
  std::unique_ptr<RemoteMirror> mirror;
};

TEST_CASE("a publication is sent in its order, the manifest last") {
  Fixture f;
  f.publish({"s2", "s1"});
  CHECK(f.mirror->flush(20s).empty());
  CHECK(f.store->calls_so_far() == Lines{"upload s2", "upload s1", "upload manifest"});
  CHECK(f.store->now().at("s2") == "content of s2");
  CHECK(f.mirror->counts().files == 3);
  CHECK(f.mirror->counts().bytes == 13 + 13 + 6);
  CHECK(f.log().empty());
}

TEST_CASE("what is there is not sent again, and what is no longer named goes after the manifest") {
  Fixture f;
  f.publish({"s1"});
  CHECK(f.mirror->flush(20s).empty());
  f.publish({"s2"});
  CHECK(f.mirror->flush(20s).empty());
  f.publish({"s3", "s2"});
  CHECK(f.mirror->flush(20s).empty());
  CHECK(f.store->calls_so_far() == Lines{"upload s1", "upload manifest", "upload s2",
                                         "upload manifest", "remove s1", "upload s3",
                                         "upload manifest"});
}

TEST_CASE("a file that was replaced under its name is sent again") {
  Fixture f;
  f.publish({"s1"});
  CHECK(f.mirror->flush(20s).empty());
  write_file("other", "new text");
  std::filesystem::rename("other", "s1");
  f.publish({"s1"});
  CHECK(f.mirror->flush(20s).empty());
  CHECK(f.store->now().at("s1") == "new text");
}

TEST_CASE("files may be deleted and replaced as soon as they are published") {
  Fixture f;
  f.store->set([&] { f.store->held = true; });
  f.publish({"s1"});
  std::filesystem::remove("s1");
  std::filesystem::remove("manifest");
  write_file("manifest", "of a later time");
  f.store->set([&] { f.store->held = false; });
  CHECK(f.mirror->flush(20s).empty());
  CHECK(f.store->now() ==
        std::map<std::string, std::string>{{"manifest", "s1\n"}, {"s1", "content of s1"}});
}

TEST_CASE("of the publications that wait for a slow store only the newest is sent") {
  Fixture f;
  f.store->set([&] { f.store->held = true; });
  f.publish({"s1"});
  f.store->wait([&] { return f.store->inside == 1; });
  for (const char* name : {"s2", "s3", "s4"}) f.publish({name});
  f.store->set([&] { f.store->held = false; });
  CHECK(f.mirror->flush(20s).empty());
  CHECK(f.store->calls_so_far() ==
        Lines{"upload s1", "upload manifest", "upload s4", "upload manifest", "remove s1"});
  CHECK(f.mirror->counts().superseded == 2);
}

TEST_CASE("a store that is away is told once, and gets the newest state when it is back") {
  Fixture f;
  f.store->set([&] { f.store->fails_with = RemoteFailure::kAway; });
  f.publish({"s1"});
  f.store->wait([&] { return f.store->calls.size() >= 5; });
  f.publish({"s2"});
  const std::size_t before = f.store->calls_so_far().size();
  f.store->wait([&] { return f.store->calls.size() >= before + 3; });
  CHECK(f.mirror->counts().store_away);
  f.store->set([&] { f.store->fails_with.reset(); });
  CHECK(f.mirror->flush(20s).empty());
  CHECK(f.store->now().count("s2") == 1);
  CHECK(f.store->now().count("s1") == 0);
  CHECK_FALSE(f.mirror->counts().store_away);
  CHECK(f.mirror->counts().failures >= 5);
  CHECK(f.log() == Lines{"WARNING fake://folder: no answer; training continues, snapshots are kept "
                         "here and uploaded later",
                         "INFO fake://folder: uploads work again"});
}

TEST_CASE("a store that refuses is an error, told once") {
  Fixture f;
  f.store->set([&] { f.store->fails_with = RemoteFailure::kRefused; });
  f.publish({"s1"});
  f.store->wait([&] { return f.store->calls.size() >= 4; });
  CHECK(f.log() == Lines{"ERROR fake://folder: no answer; training continues, snapshots are kept "
                         "here and uploaded later"});
}

TEST_CASE("flush tries at once, ends at its limit and names what is missing") {
  Fixture f(kSlow);
  f.store->set([&] { f.store->fails_with = RemoteFailure::kAway; });
  f.publish({"s2", "s1"});
  f.store->wait([&] { return f.store->calls.size() >= 2; });  // the next try is an hour away
  CHECK(f.mirror->flush(50ms) == Lines{"s2", "s1", "manifest"});
  f.store->set([&] { f.store->fails_with.reset(); });
  CHECK(f.mirror->flush(20s).empty());
}

TEST_CASE("nothing that was never published is waited for") {
  Fixture f;
  CHECK(f.mirror->flush(20s).empty());
}

TEST_CASE("an adopted file is not sent, while it stays the same") {
  Fixture f;
  write_file("s1", "as downloaded");
  f.store->set([&] { f.store->objects["s1"] = "as downloaded"; });
  f.mirror->adopt({"s1", "s1"});
  f.publish({"s1"});
  CHECK(f.mirror->flush(20s).empty());
  CHECK(f.store->calls_so_far() == Lines{"upload manifest"});
  f.publish({"s2"});
  CHECK(f.mirror->flush(20s).empty());
  CHECK(f.store->now().count("s1") == 0);
}

TEST_CASE("what earlier processes left is removed when it is ours, and nothing else") {
  Fixture f(kQuick, [](const std::string& name) { return name.starts_with("s"); });
  f.store->set([&] { f.store->objects = {{"s0", "old"}, {"notes.txt", "mine"}, {"s1", "stale"}}; });
  f.publish({"s1"});
  CHECK(f.mirror->flush(20s).empty());
  const auto now = f.store->now();
  CHECK(now.size() == 3);
  CHECK(now.at("notes.txt") == "mine");
  CHECK(now.at("s1") == "content of s1");
  f.publish({"s1"});
  CHECK(f.mirror->flush(20s).empty());
  const Lines calls = f.store->calls_so_far();
  CHECK(std::count(calls.begin(), calls.end(), "list") == 1);
}

TEST_CASE("an upload that failed may have arrived: it is removed with the others") {
  Fixture f;
  f.store->set([&] { f.store->fails_with = RemoteFailure::kAway; });
  f.publish({"s1"});
  f.store->wait([&] { return !f.store->calls.empty(); });
  f.store->set([&] { f.store->objects["s1"] = "arrived all the same"; });
  f.publish({"s2"});
  f.store->set([&] { f.store->fails_with.reset(); });
  CHECK(f.mirror->flush(20s).empty());
  CHECK(f.store->now().count("s1") == 0);
}

TEST_CASE("a file that is not there is an error of publish, and changes nothing") {
  Fixture f;
  f.publish({"s1"});
  CHECK(test::error_of<RunError>([&] {
          f.mirror->publish({{"none", "n"}}, {"manifest", "m"});
        }) == "cannot read none: No such file or directory");
  CHECK(f.mirror->flush(20s).empty());
  CHECK(f.store->now().size() == 2);
}

TEST_CASE("the end breaks off an upload and publishes nothing of it") {
  auto store = std::make_shared<test::FakeStore>();
  {
    Fixture f;
    store = f.store;
    store->set([&] { store->held = true; });
    f.publish({"s1"});
    store->wait([&] { return store->inside == 1; });
    f.mirror.reset();
    CHECK(store->inside == 0);
  }
  CHECK(store->now().empty());
}

TEST_CASE("the end does not wait for a call that hangs, which may then finish in peace") {
  auto store = std::make_shared<test::FakeStore>();
  {
    Fixture f(kQuick, nullptr, 200ms);
    store = f.store;
    store->set([&] { store->held = store->deaf = true; });
    f.publish({"s1"});
    store->wait([&] { return store->inside == 1; });
    const auto start = std::chrono::steady_clock::now();
    f.mirror.reset();
    CHECK(std::chrono::steady_clock::now() - start < 60s);
    store->set([&] { store->fails_with = RemoteFailure::kAway; });  // told to nobody
  }
  store->wait([&] { return store->inside == 0; });
}

TEST_CASE("whenever a reader looks, all that the manifest names is there") {
  Fixture f(kQuick, [](const std::string& name) { return name.starts_with("s"); });
  std::jthread looks([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const auto now = f.store->now();
      const auto manifest = now.find("manifest");
      if (manifest == now.end()) continue;
      std::istringstream names(manifest->second);
      for (std::string name; std::getline(names, name);)
        if (now.count(name) == 0) std::abort();
    }
  });
  std::jthread asks([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) static_cast<void>(f.mirror->counts());
  });
  for (int i = 3; i < 60; ++i) {
    f.publish({fmt::format("s{}", i), fmt::format("s{}", i - 1), fmt::format("s{}", i - 2)});
    if (i % 7 == 0) f.store->set([&] { f.store->fails_with = RemoteFailure::kAway; });
    if (i % 7 == 2) f.store->set([&] { f.store->fails_with.reset(); });
    if (i % 5 == 0) static_cast<void>(f.mirror->flush(3ms));
  }
  f.store->set([&] { f.store->fails_with.reset(); });
  CHECK(f.mirror->flush(20s).empty());
  CHECK(f.store->now().size() == 4);
}

}  // namespace
}  // namespace ddp::train
