// A fixed course of operations of torch's TCPStore client in C++ at 127.0.0.1:PORT; prints each
// answer, so that two servers can be compared. Usage: torch_store_client PORT
#include <torch/headeronly/version.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

namespace {

using Bytes = std::vector<uint8_t>;
using std::chrono::milliseconds;

constexpr milliseconds kMoment{50}, kPatience{60'000};

Bytes bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string shown(const Bytes& value) {
  return "'" + std::string(value.begin(), value.end()) + "'";
}
std::string shown(int64_t value) { return std::to_string(value); }
std::string shown(bool value) { return value ? "yes" : "no"; }

template <typename Answer>
void print(const char* what, const Answer& answer) {
  std::printf("%s: %s\n", what, shown(answer).c_str());
}

// The kind of the error, as its text has ports and times.
void print_error(const char* what, const std::function<void()>& action) {
  const char* kind = "none";
  try {
    action();
  } catch (const c10::DistNetworkError&) {
    kind = "network";
  } catch (const c10::DistQueueEmptyError&) {
    kind = "empty queue";
  } catch (const c10::DistStoreError&) {
    kind = "store";
  }
  std::printf("%s: error %s\n", what, kind);
}

c10::intrusive_ptr<c10d::TCPStore> client(uint16_t port) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = kPatience;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

// Returns once the server has carried out what this client sent: it does not acknowledge writes.
void settle(c10d::Store& client) { client.getNumKeys(); }

void values(c10d::Store& store, c10d::Store& other) {
  store.set("a", bytes("1"));
  store.set("", bytes(""));
  print("get", other.get("a"));
  print("get empty", other.get(""));
  print("keys", store.getNumKeys());
  print("check", store.check({"a", ""}));
  print("check absent", store.check({"a", "z"}));
  print("compare_set absent", store.compareSet("k", bytes("old"), bytes("new")));
  print("compare_set", store.compareSet("k", bytes(""), bytes("1")));
  print("compare_set other", store.compareSet("k", bytes("0"), bytes("2")));
  print("compare_set again", store.compareSet("k", bytes("1"), bytes("2")));
  print("add", store.add("n", 5));
  print("add back", other.add("n", -7));
  print("added", store.get("n"));
  print("delete", store.deleteKey("a"));
  print("delete absent", store.deleteKey("a"));
  print("extended", store.hasExtendedApi());
  store.append("log", bytes("one "));
  settle(store);
  other.append("log", bytes("two"));
  settle(other);
  store.multiSet({"x", "y"}, {bytes("X"), bytes("Y")});
  for (const Bytes& value : other.multiGet({"y", "log", "x"})) print("multi_get", value);
  auto keys = store.listKeys();
  std::sort(keys.begin(), keys.end());
  for (const auto& key : keys) print("list_keys", bytes(key));
}

void queues(c10d::Store& store, c10d::Store& other) {
  print_error("pop of nothing", [&] { store.queuePop("q", false); });
  store.queuePush("q", bytes("1"));
  settle(store);
  other.queuePush("q", bytes("2"));
  settle(other);
  print("queue_len", store.queueLen("q"));
  print("pop", other.queuePop("q", true));
  print("pop", store.queuePop("q", false));
  print("queue_len", other.queueLen("q"));
}

void waits(c10d::Store& store, c10d::Store& other) {
  print_error("wait in vain", [&] { store.wait({"never"}, kMoment); });
  std::thread waiter([&] {
    store.wait({"late", "later"}, kPatience);
    print("get late", store.get("late"));
  });
  other.set("late", bytes("here"));
  other.set("later", bytes(""));
  waiter.join();
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
  std::thread first([&] { store.barrier("barrier", 2, kPatience); });
  other.barrier("barrier", 2, kPatience);
  first.join();
  print_error("barrier in vain", [&] { store.barrier("lonely", 2, kMoment); });
#endif
}

void large(c10d::Store& store, c10d::Store& other) {
  const Bytes value(8 << 20, 'v');
  const std::vector<std::string> keys{"l0", "l1", "l2", "l3"};
  for (const auto& key : keys) store.set(key, value);  // torch's server takes a minute for multiSet
  for (const Bytes& got : other.multiGet(keys)) print("large", got == value);
  print_error("too large", [&] {
    store.set("l4", Bytes((8 << 20) + 1, 'v'));
    store.get("l4");
  });
  print("others go on", other.get("l0") == value);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto port = static_cast<uint16_t>(std::atoi(argv[1]));
  const auto store = client(port), other = client(port);
  values(*store, *other);
  queues(*store, *other);
  waits(*store, *other);
  c10d::PrefixStore next("/worker/attempt_1", other);
  print("new prefix", next.check({"x"}));
  next.set("x", bytes("next"));
  print("of the new prefix", next.get("x"));
  print("of the old one", other->get("x"));
  large(*store, *other);
}
