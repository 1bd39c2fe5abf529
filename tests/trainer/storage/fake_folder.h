// An object store in memory that fails, waits and is looked at as a test says.
#pragma once

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>
#include "tests/support/catch.h"

#include "trainer/storage/remote_folder.h"

namespace ddp::train::test {

/// Shared by the test and the FakeFolder that the mirror owns.
struct FakeStore {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::map<std::string, std::string> objects;
  std::vector<std::string> calls;           // "upload a", "remove b", "list"
  std::optional<RemoteFailure> fails_with;  // every call, while set
  bool held = false;                        // uploads wait at their start, deaf if `deaf`
  bool deaf = false;                        // they do not hear the wish to stop
  int inside = 0;                           // uploads that wait

  template <class Predicate>
  void wait(Predicate predicate) {
    std::unique_lock lock(mutex);
    INFO("waiting for the mirror");
    REQUIRE(changed.wait_for(lock, std::chrono::seconds(20), predicate));
  }
  template <class Change>
  void set(Change change) {
    const std::lock_guard lock(mutex);
    change();
    changed.notify_all();
  }
  std::map<std::string, std::string> now() {
    const std::lock_guard lock(mutex);
    return objects;
  }
  std::vector<std::string> calls_so_far() {
    const std::lock_guard lock(mutex);
    return calls;
  }
};

class FakeFolder : public RemoteFolder {
 public:
  explicit FakeFolder(std::shared_ptr<FakeStore> store) : store_(std::move(store)) {}

  const std::string& url() const override { return url_; }

  void upload(const std::string& local_file, const std::string& name,
              const std::stop_token& stop) override {
    std::unique_lock lock(store_->mutex);
    begin("upload " + name);
    ++store_->inside;
    store_->changed.notify_all();
    if (store_->deaf) {
      store_->changed.wait(lock, [&] { return !store_->held; });
    } else {
      store_->changed.wait(lock, stop, [&] { return !store_->held; });
    }
    --store_->inside;
    store_->changed.notify_all();
    if (stop.stop_requested() && !store_->deaf)
      throw RemoteError(RemoteFailure::kStopped, "stopped");
    fail_if_told();
    std::ostringstream text;
    text << std::ifstream(local_file, std::ios::binary).rdbuf();
    store_->objects[name] = text.str();
    store_->changed.notify_all();
  }
  void download(const std::string& /*name*/, const std::string& /*local_file*/,
                const std::stop_token& /*stop*/) override {}
  std::vector<RemoteEntry> list(const std::stop_token& /*stop*/) override {
    const std::lock_guard lock(store_->mutex);
    begin("list");
    fail_if_told();
    std::vector<RemoteEntry> entries;
    for (const auto& [name, text] : store_->objects)
      entries.push_back({name, static_cast<int64_t>(text.size())});
    return entries;
  }
  void remove(const std::string& name, const std::stop_token& /*stop*/) override {
    const std::lock_guard lock(store_->mutex);
    begin("remove " + name);
    fail_if_told();
    store_->objects.erase(name);
  }

 private:
  void begin(const std::string& call) {
    store_->calls.push_back(call);
    store_->changed.notify_all();
  }
  void fail_if_told() const {
    if (store_->fails_with) throw RemoteError(*store_->fails_with, "fake://folder: no answer");
  }

  std::shared_ptr<FakeStore> store_;
  std::string url_ = "fake://folder";
};

}  // namespace ddp::train::test
