// The connection between two agents: nothing is read before both have proved that they know the
// token, and nothing that comes through it does harm.
#include "launcher/rendezvous/control_channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "tests/support/catch.h"

namespace ddp::launch {
namespace {

using Catch::Contains;
using State = ControlChannel::State;
using Side = ControlChannel::Side;

struct Pair {
  Pair() {
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
  }
  int fds[2];
};

// Both ends, served until neither has anything to do.
struct Talk {
  Talk(const std::string& agent_token, const std::string& host_token) {
    const Pair pair;
    agent = std::make_unique<ControlChannel>(pair.fds[0], Side::Agent, agent_token);
    host = std::make_unique<ControlChannel>(pair.fds[1], Side::Host, host_token);
  }
  void serve() {
    for (int i = 0; i < 100; ++i) {
      agent->handle();
      host->handle();
    }
  }
  std::unique_ptr<ControlChannel> agent, host;
};

// A channel whose other end says what the test wants.
struct Raw {
  explicit Raw(Side side, const std::string& token = "token") {
    const Pair pair;
    fd = pair.fds[0];
    channel = std::make_unique<ControlChannel>(pair.fds[1], side, token);
    channel->handle();
  }
  ~Raw() { ::close(fd); }
  Raw(const Raw&) = delete;

  Raw& say(const std::string& bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t sent = ::send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) break;
      if (sent > 0) at += static_cast<std::size_t>(sent);
      channel->handle();
    }
    channel->handle();
    return *this;
  }
  std::string heard() const {
    std::string all(1 << 20, '\0');
    const ssize_t got = ::recv(fd, all.data(), all.size(), MSG_DONTWAIT);
    all.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return all;
  }

  int fd;
  std::unique_ptr<ControlChannel> channel;
};

const std::string kHello = "DDP-RUN1" + std::string(16, 'n');

TEST_CASE("two agents with the same token talk, in both directions and in order") {
  for (const char* token : {"", "a token of some length"}) {
    Talk talk(token, token);
    talk.agent->send(Join{1});  // before the handshake
    talk.serve();
    REQUIRE(talk.agent->state() == State::Open);
    REQUIRE(talk.host->state() == State::Open);
    talk.agent->send(Join{2});
    talk.host->send(Note{"to the agent"});
    talk.serve();
    for (const int port : {1, 2}) {
      const auto message = talk.host->take();
      REQUIRE(message);
      CHECK(std::get<Join>(*message).port == port);
    }
    CHECK_FALSE(talk.host->take());
    const auto note = talk.agent->take();
    REQUIRE(note);
    CHECK(std::get<Note>(*note).text == "to the agent");
    CHECK(talk.agent->all_sent());
  }
}

TEST_CASE("with different tokens, or with one only, neither end opens") {
  for (const auto& [a, b] :
       {std::pair("right", "wrong"), std::pair("", "right"), std::pair("right", "")}) {
    Talk talk(a, b);
    talk.agent->send(Join{1});
    talk.serve();
    CHECK(talk.agent->state() == State::Closed);
    CHECK_THAT(talk.agent->problem(),
               Contains("authentication failed") && Contains("--rdzv-token-file"));
    CHECK(talk.host->state() == State::Closed);
    CHECK_FALSE(talk.host->take());
  }
}

TEST_CASE("a host proves itself before an agent says more than its greeting") {
  Raw host_of_a_stranger(Side::Agent);
  CHECK(host_of_a_stranger.heard().size() == 8 + 16);
  host_of_a_stranger.say(std::string(48, 'x'));
  CHECK(host_of_a_stranger.channel->state() == State::Closed);
  CHECK(host_of_a_stranger.heard().empty());
}

TEST_CASE("an agent without a proof is closed, and its frames are not read") {
  Raw agent(Side::Host);
  agent.say(kHello);
  CHECK(agent.heard().size() == 16 + 32);
  agent.say(std::string(32, 'p') + std::string("\0\0\0\x10", 4) + R"({"type":"alive"})");
  CHECK(agent.channel->state() == State::Closed);
  CHECK_FALSE(agent.channel->take());
}

TEST_CASE("the host's own proof, sent back, is none") {
  Raw agent(Side::Host);
  agent.say(kHello);
  agent.say(agent.heard().substr(16));
  CHECK(agent.channel->state() == State::Closed);
}

TEST_CASE("other protocols are closed at their first bytes") {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("DDP-RUN2xxxxxxxx"),
        std::string("\x16\x03\x01"), std::string(1 << 20, '\0')}) {
    Raw agent(Side::Host);
    agent.say(bytes);
    CHECK(agent.channel->state() == State::Closed);
    CHECK(agent.heard().empty());
  }
}

TEST_CASE("the first bytes of a connection tell whose it is") {
  using std::string_view;
  CHECK(judge_first_bytes("") == FirstBytes::Incomplete);
  CHECK(judge_first_bytes("DDP-") == FirstBytes::Incomplete);
  CHECK(judge_first_bytes("DDP-RUN1") == FirstBytes::Agent);
  CHECK(judge_first_bytes("DDP-RUN1 and more") == FirstBytes::Agent);
  CHECK(judge_first_bytes("DDX") == FirstBytes::Unknown);
  CHECK(judge_first_bytes(string_view("\0", 1)) == FirstBytes::Incomplete);
  CHECK(judge_first_bytes(string_view("\x00\xCE\xF7\x85\x3C", 5)) == FirstBytes::TcpStore);
  CHECK(judge_first_bytes(string_view("\x00\xCE\xF7\x85\x3D", 5)) == FirstBytes::Unknown);
}

// A raw end that has been through the handshake: its frames come from `talk.agent`'s socket.
struct Opened : Talk {
  Opened() : Talk("t", "t") {
    serve();
    REQUIRE(host->state() == State::Open);
  }
  void say(const std::string& bytes) {
    for (std::size_t at = 0; at < bytes.size() && host->state() == State::Open;) {
      const ssize_t sent = ::send(agent->fd(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent > 0) at += static_cast<std::size_t>(sent);
      host->handle();
    }
  }
};

TEST_CASE("a frame that comes byte by byte is whole at its end") {
  Opened talk;
  const std::string json = R"({"type":"join","port":7})";
  std::string frame(4, '\0');
  frame[3] = static_cast<char>(json.size());
  for (const char byte : frame + json) {
    CHECK_FALSE(talk.host->take());
    talk.say(std::string(1, byte));
  }
  const auto message = talk.host->take();
  REQUIRE(message);
  CHECK(std::get<Join>(*message).port == 7);
}

TEST_CASE("a frame that is too large or malformed closes the connection") {
  Opened large;
  large.say(std::string("\x00\x10\x00\x01", 4));
  CHECK(large.host->state() == State::Closed);
  CHECK_THAT(large.host->problem(), Contains("more than 1 MiB"));
  Opened malformed;
  malformed.say(std::string("\0\0\0\2{}", 6));
  CHECK(malformed.host->state() == State::Closed);
  CHECK_THAT(malformed.host->problem(), Contains("malformed message"));
  CHECK_FALSE(malformed.host->peer_is_gone());
}

TEST_CASE("a peer that does not read is given up, before it takes much memory") {
  Opened talk;
  const Note note{std::string(4'000, 'x')};
  for (int i = 0; i < 10'000 && talk.host->state() == State::Open; ++i) talk.host->send(note);
  CHECK(talk.host->state() == State::Closed);
  CHECK(talk.host->problem() == "the peer reads too slowly");
}

TEST_CASE("what is queued is sent before the end, and the end is a certain one") {
  Opened talk;
  for (int i = 0; i < 200; ++i) talk.host->send(Note{std::string(4'000, 'x')});
  talk.host->finish_sending();
  talk.serve();
  int notes = 0;
  while (talk.agent->take()) ++notes;
  CHECK(notes == 200);
  CHECK(talk.agent->state() == State::Closed);
  CHECK(talk.agent->peer_is_gone());
}

TEST_CASE("a closed channel neither polls nor sends") {
  Opened talk;
  talk.agent.reset();
  talk.host->handle();
  CHECK(talk.host->state() == State::Closed);
  CHECK(talk.host->peer_is_gone());
  CHECK(talk.host->wanted() == 0);
  CHECK(talk.host->fd() == -1);
  talk.host->send(Alive{});
  talk.host->finish_sending();
  talk.host->handle();
  CHECK(talk.host->all_sent());
}

}  // namespace
}  // namespace ddp::launch
