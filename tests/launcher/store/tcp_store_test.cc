// The workers' store: requests as bytes, through the parser, the contents and real sockets.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <random>
#include <string>
#include <vector>
#include "tests/support/catch.h"

#include "launcher/store/key_values.h"
#include "launcher/store/tcp_store_protocol.h"
#include "launcher/store/tcp_store_server.h"
#include "tests/launcher/store/request_bytes.h"

namespace ddp::launch {
namespace {

using Type = QueryType;
using Texts = std::vector<std::string>;

std::string hello() { return encode({Type::kValidate, {}, {}, kTcpStoreMagic}); }

std::string bytes_of(Type type, Texts keys = {}, Texts values = {}, std::int64_t number = 0) {
  return encode({type, std::move(keys), std::move(values), number});
}

std::string number_bytes(std::int64_t value) {
  std::string out;
  put_number(out, value);
  return out;
}

std::string text_bytes(std::string_view text) {
  std::string out;
  put_text(out, text);
  return out;
}

std::string numbered(std::string name, int number) { return name.append(std::to_string(number)); }

std::string byte_text(char value) { return std::string(1, value); }

// One end of a connection to a server that is served whenever something is expected of it.
struct StoreFixture {
  explicit StoreFixture(const StoreLimits& limits = {}) : server(limits) {}

  struct Peer {
    explicit Peer(StoreFixture& from) : store(from) {
      int ends[2];
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
      fd = ends[0];
      store.server.adopt(ends[1]);
    }
    ~Peer() { hang_up(); }
    Peer(const Peer&) = delete;

    Peer& say(const std::string& bytes) {
      for (std::size_t at = 0; at < bytes.size();) {
        const ssize_t sent = ::send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) break;
        if (sent > 0) at += static_cast<std::size_t>(sent);
        store.serve();
      }
      store.serve();
      return *this;
    }
    // All that came; "closed" once there is no more to come.
    std::string heard() {
      std::string all;
      char buffer[1 << 16];
      for (;;) {
        const ssize_t got = ::recv(fd, buffer, sizeof buffer, 0);
        if (got == 0 || (got < 0 && errno == ECONNRESET)) return all + "closed";
        if (got < 0) return all;
        all.append(buffer, static_cast<std::size_t>(got));
        store.serve();
      }
    }
    std::string ask(const std::string& bytes) { return say(bytes).heard(); }
    void hang_up() {
      if (fd >= 0) ::close(fd);
      fd = -1;
      store.serve();
    }

    StoreFixture& store;
    int fd = -1;
  };

  void serve() {
    for (;;) {
      std::vector<pollfd> fds;
      server.add_poll_fds(fds);
      if (::poll(fds.data(), fds.size(), 0) <= 0) return;
      server.handle(fds);
    }
  }

  TcpStoreServer server;
};

struct ValidPeer : StoreFixture::Peer {
  explicit ValidPeer(StoreFixture& from) : Peer(from) { say(hello()); }
};

TEST_CASE("what has no greeting, a false one or a second one is closed") {
  StoreFixture store;
  for (const std::string& start :
       {bytes_of(Type::kGet, {"k"}), std::string("\0\0\0\0\0", 5), hello() + hello(),
        hello() + byte_text(19), std::string("GET / HTTP/1.1\r\n\r\n")}) {
    StoreFixture::Peer peer(store);
    CHECK(peer.ask(start) == "closed");
  }
  CHECK(store.server.connections() == 0);
  CHECK(store.server.bytes() == 0);
}

TEST_CASE("a ping gives its nonce back") {
  StoreFixture store;
  ValidPeer peer(store);
  CHECK(peer.ask(bytes_of(Type::kPing, {}, {}, 0x01020304)) == "\x04\x03\x02\x01");
}

TEST_CASE("a wait is answered once the last of its keys is there, by whatever sets it") {
  for (const std::string& setter :
       {bytes_of(Type::kSet, {"b"}, {""}), bytes_of(Type::kAdd, {"b"}, {}, 0),
        bytes_of(Type::kAppend, {"b"}, {"x"}), bytes_of(Type::kMultiSet, {"c", "b"}, {"", ""}),
        bytes_of(Type::kCompareSet, {"b"}, {"", "x"}), bytes_of(Type::kQueuePush, {"b"}, {"x"}),
        bytes_of(Type::kBarrier, {"b"}, {}, 1)}) {
    StoreFixture store;
    ValidPeer waiting(store), other(store);
    CHECK(waiting.ask(bytes_of(Type::kWait, {"a", "b", "a"})).empty());
    other.say(bytes_of(Type::kSet, {"a"}, {"x"}));
    CHECK(waiting.heard().empty());
    other.say(setter);
    CHECK(waiting.heard() == byte_text(kStopWaiting));
    other.say(setter);
    CHECK(waiting.heard().empty());
    CHECK(waiting.ask(bytes_of(Type::kWait, {"b"})) == byte_text(kStopWaiting));
  }
}

TEST_CASE("a wait that was cancelled or whose client went is not answered") {
  StoreFixture store;
  ValidPeer first(store), other(store);
  CHECK(first.ask(bytes_of(Type::kWait, {"k"})).empty());
  CHECK(first.ask(bytes_of(Type::kCancelWait)) == byte_text(kWaitCanceled));
  ValidPeer second(store);
  CHECK(second.ask(bytes_of(Type::kWait, {"k", "l"})).empty());
  second.hang_up();
  other.say(bytes_of(Type::kMultiSet, {"k", "l"}, {"", ""}));
  CHECK(first.heard().empty());
  CHECK(other.ask(bytes_of(Type::kCheck, {"k"})) == byte_text(kReady));
}

TEST_CASE("a queue is first in, first out, and each push wakes the one who has waited longest") {
  StoreFixture store;
  ValidPeer early(store), late(store), other(store);
  CHECK(other.ask(bytes_of(Type::kQueuePop, {"q"})) == number_bytes(0));
  CHECK(early.ask(bytes_of(Type::kWait, {"q"})).empty());
  CHECK(late.ask(bytes_of(Type::kWait, {"q"})).empty());
  other.say(bytes_of(Type::kQueuePush, {"q"}, {"1"}));
  CHECK(early.heard() == byte_text(kStopWaiting));
  CHECK(late.heard().empty());
  CHECK(early.ask(bytes_of(Type::kQueuePop, {"q"})) == number_bytes(1) + text_bytes("1"));
  other.say(bytes_of(Type::kQueuePush, {"q"}, {"2"}) + bytes_of(Type::kQueuePush, {"q"}, {"3"}));
  CHECK(late.heard() == byte_text(kStopWaiting));
  CHECK(other.ask(bytes_of(Type::kQueueLen, {"q"})) == number_bytes(2));
  CHECK(late.ask(bytes_of(Type::kQueuePop, {"q"})) == number_bytes(2) + text_bytes("2"));
  CHECK(other.ask(bytes_of(Type::kGetNumKeys)) == number_bytes(0));
  CHECK(other.ask(bytes_of(Type::kCheck, {"q"})) == byte_text(kReady));
}

TEST_CASE("lengths and counts beyond the limits end the connection before memory is taken") {
  StoreFixture store;
  const auto type = [](Type t) { return hello() + byte_text(static_cast<char>(t)); };
  const std::string huge(8, '\xff');
  for (const std::string& message :
       {type(Type::kGet) + huge, type(Type::kGet) + number_bytes(8193), type(Type::kWait) + huge,
        type(Type::kCheck) + number_bytes((128 << 10) + 1), type(Type::kMultiSet) + huge,
        type(Type::kSet) + text_bytes("k") + huge,
        type(Type::kSet) + text_bytes("k") + number_bytes((8 << 20) + 1)}) {
    CHECK(StoreFixture::Peer(store).ask(message) == "closed");
  }
  StoreFixture::Peer longest(store);
  const std::string key(8192, 'k'), value(8 << 20, 'v');
  longest.say(hello() + bytes_of(Type::kSet, {key}, {value}));
  CHECK(longest.ask(bytes_of(Type::kGet, {key})) == text_bytes(value));
}

TEST_CASE("a client that wants more than the contents may have is closed, and others read on") {
  StoreLimits limits;
  limits.contents = 1 << 20;
  limits.message = 600 << 10;
  StoreFixture store(limits);
  ValidPeer greedy(store), other(store);
  const std::string value(100 << 10, 'v');
  std::string heard;
  for (int i = 0; i < 20 && heard.empty(); ++i) {
    heard = greedy.ask(bytes_of(Type::kSet, {numbered("k", i)}, {value}));
  }
  CHECK(heard == "closed");
  CHECK_THAT(store.server.take_note(), Catch::StartsWith("the workers' store is full: it holds "));
  CHECK(store.server.bytes() <= limits.contents);
  CHECK(other.ask(bytes_of(Type::kGet, {"k0"})) == text_bytes(value));
  // An answer many times as long as its request.
  CHECK(ValidPeer(store).ask(bytes_of(Type::kMultiGet, Texts(7, "k0"))) == "closed");
  const std::string first = text_bytes(value);
  CHECK(other.ask(bytes_of(Type::kMultiGet, {"k0", "k1"})) == first + first);
}

TEST_CASE("requests that never end take a bounded part of the memory") {
  StoreLimits limits;
  limits.buffers = 1 << 20;
  StoreFixture store(limits);
  std::vector<std::unique_ptr<ValidPeer>> peers;
  std::string begun = bytes_of(Type::kSet, {"k"}, {std::string(300 << 10, 'v')});
  begun.pop_back();
  for (int i = 0; i < 10; ++i) {
    peers.push_back(std::make_unique<ValidPeer>(store));
    peers.back()->say(begun);
    CHECK(store.server.bytes() <= limits.buffers);
  }
  CHECK(peers[0]->say("v").ask(bytes_of(Type::kGetNumKeys)) == number_bytes(1));
  CHECK(peers[9]->heard() == "closed");
  CHECK_FALSE(store.server.take_note().empty());
  CHECK(store.server.take_note().empty());
}

TEST_CASE("a client that does not read its answers is not listened to, and others are") {
  StoreLimits limits;
  limits.unread = 10'000;
  StoreFixture store(limits);
  ValidPeer slow(store), other(store);
  const std::string value(100'000, 'v'), get = bytes_of(Type::kGet, {"k"});
  other.say(bytes_of(Type::kSet, {"k"}, {value}));
  std::string many;
  for (int i = 0; i < 1000; ++i) many += get;
  REQUIRE(::send(slow.fd, many.data(), many.size(), 0) == static_cast<ssize_t>(many.size()));
  store.serve();
  CHECK(store.server.bytes() < 600'000);
  CHECK(other.ask(get) == text_bytes(value));
  const std::string heard = slow.heard();
  CHECK(heard.size() == 1000 * text_bytes(value).size());
  CHECK(slow.ask(get) == text_bytes(value));
}

TEST_CASE("hundreds of clients wait for one key, and one descriptor is polled") {
  StoreFixture store;
  std::vector<std::unique_ptr<ValidPeer>> peers;
  for (int i = 0; i < 400; ++i) {
    peers.push_back(std::make_unique<ValidPeer>(store));
    peers.back()->say(bytes_of(Type::kWait, {"go", numbered("own", i)}));
  }
  std::vector<pollfd> fds;
  store.server.add_poll_fds(fds);
  CHECK(fds.size() == 1);
  peers[0]->say(bytes_of(Type::kSet, {"go"}, {""}));
  for (auto& peer : peers) CHECK(peer->heard().empty());
  for (int i = 0; i < 400; ++i) {
    peers[0]->say(bytes_of(Type::kSet, {numbered("own", i)}, {""}));
    CHECK(peers[static_cast<std::size_t>(i)]->heard() == byte_text(kStopWaiting));
  }
  peers.clear();
  CHECK(store.server.connections() == 0);
}

TEST_CASE("what is in use falls back to nothing when everything is taken away again") {
  KeyValues contents;
  std::vector<KeyValues::Answer> answers;
  const auto apply = [&](Request request, KeyValues::Peer peer = 1) {
    const bool applied = contents.apply(peer, std::move(request), answers);
    CHECK(applied);
  };
  apply({Type::kSet, {"a"}, {"long value"}, 0});
  apply({Type::kSet, {"a"}, {"v"}, 0});
  apply({Type::kAppend, {"a"}, {"more"}, 0});
  apply({Type::kAdd, {"n"}, {}, 100});
  apply({Type::kQueuePush, {"q"}, {"v"}, 0});
  apply({Type::kWait, {"w", "x"}, {}, 0}, 2);
  apply({Type::kWait, {"y"}, {}, 0}, 2);  // in the place of the former
  apply({Type::kWait, {"w", "x", "a"}, {}, 0}, 3);
  CHECK(contents.bytes() > 0);
  CHECK(contents.waiting() == 2);
  contents.forget(2);
  contents.forget(2);
  apply({Type::kCancelWait, {}, {}, 0}, 3);
  apply({Type::kDeleteKey, {"a"}, {}, 0});
  apply({Type::kDeleteKey, {"n"}, {}, 0});
  apply({Type::kQueuePop, {"q"}, {}, 0});
  CHECK(contents.bytes() == 0);
  CHECK(contents.waiting() == 0);
}

TEST_CASE("however requests are cut into pieces, the same ones come out") {
  const std::string all =
      hello() + bytes_of(Type::kMultiSet, {"a", "b"}, {"1", std::string(3000, 'x')}) +
      bytes_of(Type::kWait) + bytes_of(Type::kListKeys) + bytes_of(Type::kBarrier, {"k"}, {}, 5) +
      bytes_of(Type::kCompareSet, {"k"}, {"e", "d"}) + bytes_of(Type::kPing, {}, {}, 77);
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    RequestParser parser;
    std::string again = hello();
    for (std::size_t at = 0; at < all.size();) {
      const std::size_t size = 1 + random() % 40;
      parser.feed(std::string_view(all).substr(at, size));
      at += size;
      Request request;
      while (parser.next(request) == RequestParser::Next::kComplete) again += encode(request);
    }
    CHECK(again == all);
    CHECK(parser.buffered() == 0);
  }
}

}  // namespace
}  // namespace ddp::launch
