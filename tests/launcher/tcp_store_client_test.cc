// The client of a TCPStore, beside the server and beside what is none.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>
#include "tests/support/catch.h"

#include "launcher/base/clock.h"
#include "launcher/base/errors.h"
#include "launcher/rendezvous/listening_socket.h"
#include "launcher/store/tcp_store_client.h"
#include "launcher/store/tcp_store_server.h"

namespace ddp::launch {
namespace {

using State = TcpStoreClient::State;
using Type = QueryType;

// A listening server, which may come and go, and the loop for it and its clients.
struct ServedStore {
  ServedStore() : socket(std::make_unique<ListeningSocket>("127.0.0.1", 0)), port(socket->port()) {}

  void run_until(const std::function<bool()>& done) {
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    while (!done()) {
      REQUIRE(Clock::now() < deadline);
      std::vector<pollfd> fds;
      if (socket) fds.push_back({socket->fd(), POLLIN, 0});
      server.add_poll_fds(fds);
      for (auto* client : clients) client->add_poll_fds(fds);
      ::poll(fds.data(), fds.size(), 10);  // a deadline of a client is never far
      accept_all();
      server.handle(fds);
      for (auto* client : clients) client->handle(fds);
    }
  }
  void accept_all() {
    while (socket) {
      const int fd = ::accept4(socket->fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) return;
      if (on_accept) {
        on_accept(fd);
      } else {
        server.adopt(fd);
      }
    }
  }
  StoreAnswer answer_of(TcpStoreClient& client) {
    std::optional<StoreAnswer> answer;
    run_until([&] { return (answer = client.take()) || client.state() == State::Lost; });
    REQUIRE(answer);
    return *answer;
  }

  std::unique_ptr<ListeningSocket> socket;
  int port;
  TcpStoreServer server;
  std::vector<TcpStoreClient*> clients;
  std::function<void(int)> on_accept;
};

TEST_CASE("the store's client: every request and its answer") {
  ServedStore store;
  TcpStoreClient client("127.0.0.1", store.port);
  store.clients = {&client};
  client.ask({Type::Set, {"a"}, {"A"}, 0});
  client.ask({Type::Get, {"a"}, {}, 0});
  client.ask({Type::Add, {"n"}, {}, -5});
  client.ask({Type::CompareSet, {"c"}, {"", "C"}, 0});
  client.ask({Type::Append, {"a"}, {"B"}, 0});
  client.ask({Type::MultiSet, {"x", "y"}, {"X", "Y"}, 0});
  client.ask({Type::MultiGet, {"y", "a", "absent"}, {}, 0});
  client.ask({Type::Check, {"absent"}, {}, 0});
  client.ask({Type::Wait, {"a", "x"}, {}, 0});
  client.ask({Type::ListKeys, {}, {}, 0});
  client.ask({Type::DeleteKey, {"x"}, {}, 0});
  client.ask({Type::GetNumKeys, {}, {}, 0});
  client.ask({Type::QueuePop, {"q"}, {}, 0});
  client.ask({Type::QueuePush, {"q"}, {"first"}, 0});
  client.ask({Type::QueueLen, {"q"}, {}, 0});
  client.ask({Type::QueuePop, {"q"}, {}, 0});
  client.ask({Type::Barrier, {"b"}, {}, 1});
  client.ask({Type::CancelWait, {}, {}, 0});
  const auto expect = [&](Type to, std::int64_t number, const std::vector<std::string>& values) {
    const StoreAnswer answer = store.answer_of(client);
    CHECK(answer.to == to);
    CHECK(answer.number == number);
    CHECK(answer.values == values);
  };
  expect(Type::Get, 0, {"A"});
  expect(Type::Add, -5, {});
  expect(Type::CompareSet, 0, {"C"});
  expect(Type::MultiGet, 0, {"Y", "AB", ""});
  expect(Type::Check, kNotReady, {});
  expect(Type::Wait, kStopWaiting, {});
  expect(Type::ListKeys, 5, {"a", "c", "n", "x", "y"});
  expect(Type::DeleteKey, 1, {});
  expect(Type::GetNumKeys, 4, {});
  expect(Type::QueuePop, 0, {});
  expect(Type::QueueLen, 1, {});
  expect(Type::QueuePop, 1, {"first"});
  expect(Type::Barrier, kStopWaiting, {});
  expect(Type::CancelWait, kWaitCanceled, {});
  CHECK(client.state() == State::Open);
  CHECK(client.problem().empty());
}

TEST_CASE("requests after a wait are sent once it is answered") {
  ServedStore store;
  TcpStoreClient waiting("127.0.0.1", store.port), other("127.0.0.1", store.port);
  store.clients = {&waiting, &other};
  waiting.ask({Type::Wait, {"k"}, {}, 0});
  waiting.ask({Type::Add, {"n"}, {}, 1});
  other.ask({Type::Add, {"n"}, {}, 1});
  CHECK(store.answer_of(other).number == 1);
  other.ask({Type::Set, {"k"}, {"v"}, 0});
  CHECK(store.answer_of(waiting).to == Type::Wait);
  CHECK(store.answer_of(waiting).number == 2);
}

TEST_CASE("large values pass in both directions") {
  ServedStore store;
  TcpStoreClient client("127.0.0.1", store.port);
  store.clients = {&client};
  const std::string value(8 << 20, 'v');
  client.ask({Type::Set, {"k"}, {value}, 0});
  client.ask({Type::Get, {"k"}, {}, 0});
  CHECK(store.answer_of(client).values.at(0) == value);
}

TEST_CASE("the client tries until a server comes up, and says why not yet") {
  ServedStore store;
  store.socket.reset();
  TcpStoreClient client("127.0.0.1", store.port);
  store.clients = {&client};
  client.ask({Type::Add, {"n"}, {}, 1});
  store.run_until([&] { return !client.problem().empty(); });
  CHECK(client.problem() == "Connection refused");
  CHECK(client.state() == State::Connecting);
  store.socket = std::make_unique<ListeningSocket>("127.0.0.1", store.port);
  CHECK(store.answer_of(client).number == 1);
  CHECK(client.problem().empty());
}

TEST_CASE("a store that goes is lost for good") {
  ServedStore store;
  TcpStoreClient client("127.0.0.1", store.port);
  store.clients = {&client};
  store.run_until([&] { return client.state() == State::Open; });
  store.server.clear();
  store.run_until([&] { return client.state() != State::Open; });
  CHECK(client.state() == State::Lost);
  CHECK(client.problem() == "the store closed the connection");
  std::vector<pollfd> fds;
  client.add_poll_fds(fds);
  CHECK(fds.empty());
  client.ask({Type::Add, {"n"}, {}, 1});
  CHECK_FALSE(client.take());
}

TEST_CASE("who does not answer as a store is not taken for one") {
  ServedStore store;
  store.on_accept = [](int fd) {
    CHECK(::send(fd, "HTTP/1.1 400 Bad Request\r\n", 26, MSG_NOSIGNAL) == 26);
    ::close(fd);
  };
  TcpStoreClient client("127.0.0.1", store.port);
  store.clients = {&client};
  store.run_until([&] { return client.problem() == "the answer is not a TCPStore's"; });
  CHECK(client.state() == State::Connecting);
}

TEST_CASE("names are not resolved, and too many requests are refused") {
  CHECK_THROWS_AS(TcpStoreClient("localhost", 1), LaunchError);
  TcpStoreClient client("::1", 1);
  for (int i = 0; i < 9; ++i) client.ask({Type::Set, {"k"}, {std::string(8 << 20, 'v')}, 0});
  CHECK(client.state() == State::Lost);
  CHECK(client.problem() == "too many requests are waiting to be sent");
}

TEST_CASE("answers that are too long or that nobody asked for are malformed") {
  const auto next = [](Type type, std::size_t keys, const std::string& bytes) {
    AnswerParser parser;
    parser.expect(type, keys);
    parser.feed(bytes);
    StoreAnswer answer;
    return parser.next(answer);
  };
  using Next = AnswerParser::Next;
  const std::string huge(8, '\xff');
  CHECK(next(Type::Get, 1, huge) == Next::Malformed);
  CHECK(next(Type::ListKeys, 0, huge) == Next::Malformed);
  CHECK(next(Type::Get, 1, std::string("\3\0\0\0\0\0\0\0ab", 10)) == Next::NeedsMoreBytes);
  CHECK(next(Type::Get, 1, std::string("\2\0\0\0\0\0\0\0ab", 10)) == Next::Complete);
  AnswerParser parser;
  parser.feed("x");
  StoreAnswer answer;
  CHECK(parser.next(answer) == Next::Malformed);
}

}  // namespace
}  // namespace ddp::launch
