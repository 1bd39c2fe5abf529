// The store's server and a client, through real connections.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>
#include "tests/support/catch.h"

#include "launcher/base/clock.h"
#include "launcher/base/system/sockets.h"
#include "launcher/rendezvous/wire/round_port.h"
#include "launcher/store/tcp_store_server.h"
#include "tests/launcher/store/tcp_store_client.h"

namespace ddp::launch {
namespace {

using State = TcpStoreClient::State;
using Type = QueryType;

// A listening server, and the loop for it and its clients.
struct ServedStore {
  void run_until(const std::function<bool()>& done) {
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    while (!done()) {
      REQUIRE(Clock::now() < deadline);
      std::vector<pollfd> fds;
      fds.push_back({socket.get(), POLLIN, 0});
      server.add_poll_fds(fds);
      for (auto* client : clients) client->add_poll_fds(fds);
      ::poll(fds.data(), fds.size(), 10);  // a deadline of a client is never far
      accept_all();
      server.handle(fds);
      for (auto* client : clients) client->handle(fds);
    }
  }
  void accept_all() {
    for (;;) {
      const int fd = ::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) return;
      server.adopt(fd);
    }
  }
  StoreAnswer answer_of(TcpStoreClient& client) {
    std::optional<StoreAnswer> answer;
    run_until([&] { return (answer = client.take()) || client.state() == State::kLost; });
    REQUIRE(answer);
    return *answer;
  }

  Descriptor socket = listen_for_workers("127.0.0.1", 0);
  int port = port_of(socket.get());
  TcpStoreServer server;
  std::vector<TcpStoreClient*> clients;
};

TEST_CASE("a client of the store gets the answer to every request") {
  ServedStore store;
  TcpStoreClient client("127.0.0.1", store.port);
  store.clients = {&client};
  client.ask({Type::kSet, {"a"}, {"A"}, 0});
  client.ask({Type::kGet, {"a"}, {}, 0});
  client.ask({Type::kAdd, {"n"}, {}, -5});
  client.ask({Type::kCompareSet, {"c"}, {"", "C"}, 0});
  client.ask({Type::kAppend, {"a"}, {"B"}, 0});
  client.ask({Type::kMultiSet, {"x", "y"}, {"X", "Y"}, 0});
  client.ask({Type::kMultiGet, {"y", "a", "absent"}, {}, 0});
  client.ask({Type::kCheck, {"absent"}, {}, 0});
  client.ask({Type::kWait, {"a", "x"}, {}, 0});
  client.ask({Type::kListKeys, {}, {}, 0});
  client.ask({Type::kDeleteKey, {"x"}, {}, 0});
  client.ask({Type::kGetNumKeys, {}, {}, 0});
  client.ask({Type::kQueuePop, {"q"}, {}, 0});
  client.ask({Type::kQueuePush, {"q"}, {"first"}, 0});
  client.ask({Type::kQueueLen, {"q"}, {}, 0});
  client.ask({Type::kQueuePop, {"q"}, {}, 0});
  client.ask({Type::kBarrier, {"b"}, {}, 1});
  client.ask({Type::kCancelWait, {}, {}, 0});
  const auto expect = [&](Type to, std::int64_t number, const std::vector<std::string>& values) {
    const StoreAnswer answer = store.answer_of(client);
    CHECK(answer.to == to);
    CHECK(answer.number == number);
    CHECK(answer.values == values);
  };
  expect(Type::kGet, 0, {"A"});
  expect(Type::kAdd, -5, {});
  expect(Type::kCompareSet, 0, {"C"});
  expect(Type::kMultiGet, 0, {"Y", "AB", ""});
  expect(Type::kCheck, kNotReady, {});
  expect(Type::kWait, kStopWaiting, {});
  expect(Type::kListKeys, 5, {"a", "c", "n", "x", "y"});
  expect(Type::kDeleteKey, 1, {});
  expect(Type::kGetNumKeys, 4, {});
  expect(Type::kQueuePop, 0, {});
  expect(Type::kQueueLen, 1, {});
  expect(Type::kQueuePop, 1, {"first"});
  expect(Type::kBarrier, kStopWaiting, {});
  expect(Type::kCancelWait, kWaitCanceled, {});
  CHECK(client.state() == State::kOpen);
  CHECK(client.problem().empty());
}

TEST_CASE("requests after a wait are sent once it is answered") {
  ServedStore store;
  TcpStoreClient waiting("127.0.0.1", store.port), other("127.0.0.1", store.port);
  store.clients = {&waiting, &other};
  waiting.ask({Type::kWait, {"k"}, {}, 0});
  waiting.ask({Type::kAdd, {"n"}, {}, 1});
  other.ask({Type::kAdd, {"n"}, {}, 1});
  CHECK(store.answer_of(other).number == 1);
  other.ask({Type::kSet, {"k"}, {"v"}, 0});
  CHECK(store.answer_of(waiting).to == Type::kWait);
  CHECK(store.answer_of(waiting).number == 2);
}

TEST_CASE("large values pass in both directions") {
  ServedStore store;
  TcpStoreClient client("127.0.0.1", store.port);
  store.clients = {&client};
  const std::string value(8 << 20, 'v');
  client.ask({Type::kSet, {"k"}, {value}, 0});
  client.ask({Type::kGet, {"k"}, {}, 0});
  CHECK(store.answer_of(client).values.at(0) == value);
}

}  // namespace
}  // namespace ddp::launch
