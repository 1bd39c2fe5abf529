// The connection between two agents: nothing is read before both have proved that they know the
// token, and nothing that comes through it does harm.
#include "launcher/rendezvous/wire/control_channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/rendezvous/round/membership_rules.h"
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
    agent = std::make_unique<ControlChannel>(pair.fds[0], Side::kAgent, agent_token);
    host = std::make_unique<ControlChannel>(pair.fds[1], Side::kHost, host_token);
  }
  void serve() {
    for (int i = 0; i < 100; ++i) {
      agent->handle();
      host->handle();
    }
  }
  std::unique_ptr<ControlChannel> agent, host;
};

// A channel whose other end sends what the test wants.
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

const std::string kVersion("\0\3", 2);
const std::string kHello = "DDP-RUN/" + kVersion + std::string(16, 'n');

TEST_CASE("bytes that nobody acknowledges close a connection before its peer is given up") {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const ControlChannel channel(fd, Side::kHost, "");
  unsigned limit = 0;
  socklen_t size = sizeof limit;
  REQUIRE(::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, &size) == 0);
  CHECK(limit > 0);
  CHECK(std::chrono::milliseconds(2 * limit) <= MembershipRules{}.patience());
  CHECK(MembershipRules{}.patience() == std::chrono::seconds(15));
}

TEST_CASE("two agents with the same token talk, in both directions and in order") {
  for (const char* token : {"", "a token of some length"}) {
    Talk talk(token, token);
    talk.agent->send(Join{1});  // before the handshake
    talk.serve();
    REQUIRE(talk.agent->state() == State::kOpen);
    REQUIRE(talk.host->state() == State::kOpen);
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
    CHECK(talk.agent->state() == State::kClosed);
    CHECK_THAT(talk.agent->problem(),
               Contains("authentication failed") && Contains("--rdzv-token-file"));
    CHECK(talk.host->state() == State::kClosed);
    CHECK_FALSE(talk.host->take());
  }
}

TEST_CASE("a host proves itself before an agent says more than its greeting") {
  Raw host_of_a_stranger(Side::kAgent);
  CHECK(host_of_a_stranger.heard().size() == 8 + 2 + 16);
  host_of_a_stranger.say(kHello + std::string(32, 'x'));
  CHECK_THAT(host_of_a_stranger.channel->problem(), Contains("authentication failed"));
  CHECK(host_of_a_stranger.channel->state() == State::kClosed);
  CHECK(host_of_a_stranger.heard().empty());
}

TEST_CASE("an agent without a proof is closed, and its frames are not read") {
  Raw agent(Side::kHost);
  agent.say(kHello);
  CHECK(agent.heard().size() == 26 + 32);
  agent.say(std::string(32, 'p') + std::string("\0\0\0\x10", 4) + R"({"type":"alive"})");
  CHECK(agent.channel->state() == State::kClosed);
  CHECK_FALSE(agent.channel->take());
}

TEST_CASE("the host's own proof, sent back, is none") {
  Raw agent(Side::kHost);
  agent.say(kHello);
  agent.say(agent.heard().substr(26));
  CHECK(agent.channel->state() == State::kClosed);
}

TEST_CASE("other protocols are closed at their first bytes") {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("DDP-RUNxxxxxxxxx"),
        std::string("\x16\x03\x01"), std::string(1 << 20, '\0')}) {
    Raw agent(Side::kHost);
    agent.say(bytes);
    CHECK(agent.channel->state() == State::kClosed);
    CHECK(agent.heard().empty());
  }
}

TEST_CASE("the first bytes of a connection tell whose it is") {
  using std::string_view;
  CHECK(judge_first_bytes("") == FirstBytes::kIncomplete);
  CHECK(judge_first_bytes("DDP-") == FirstBytes::kIncomplete);
  CHECK(judge_first_bytes("DDP-RUN/") == FirstBytes::kAgent);
  CHECK(judge_first_bytes("DDP-RUN1 and more") == FirstBytes::kAgent);  // the version before
  CHECK(judge_first_bytes("DDX") == FirstBytes::kUnknown);
  CHECK(judge_first_bytes(string_view("\0", 1)) == FirstBytes::kIncomplete);
  CHECK(judge_first_bytes(string_view("\x00\xCE\xF7\x85\x3C", 5)) == FirstBytes::kTcpStore);
  CHECK(judge_first_bytes(string_view("\x00\xCE\xF7\x85\x3D", 5)) == FirstBytes::kUnknown);
}

TEST_CASE("another version is named by both ends, and nothing else is said") {
  for (const std::string& hello : {"DDP-RUN1" + std::string(16, 'n'),
                                   "DDP-RUN/" + std::string("\1\1", 2) + std::string(16, 'n')}) {
    Raw agent(Side::kHost);
    agent.say(hello);
    CHECK(agent.channel->state() == State::kClosed);
    CHECK(agent.channel->objection() == ControlChannel::Objection::kOtherVersion);
    CHECK_THAT(
        agent.channel->problem(),
        Contains(hello[7] == '1' ? "version 1 of" : "version 257 of") && Contains(") version 3;"));
    CHECK(agent.heard() == "DDP-RUN/" + kVersion);
  }
  Raw host(Side::kAgent);
  host.say("DDP-RUN/" + std::string("\0\4", 2));  // as a host of version 4 answers
  CHECK(host.channel->objection() == ControlChannel::Objection::kOtherVersion);
  CHECK_THAT(host.channel->problem(), Contains("version 4 of") && Contains(") version 3;"));
}

// An agent of the test's own that has been through the handshake.
struct Opened : Raw {
  explicit Opened(const std::string& token = "token") : Raw(Side::kHost, token) {
    say(kHello);
    const std::string answer = heard();
    REQUIRE(answer.size() == 26 + 32);
    const ConnectionKeys keys(token, kHello, answer.substr(0, 26));
    CHECK(keys.accepts_proof(ConnectionKeys::From::kHost, answer.substr(26)));
    seal = keys.seal(ConnectionKeys::From::kAgent);
    hosts_seal = keys.seal(ConnectionKeys::From::kHost);
    say(keys.proof(ConnectionKeys::From::kAgent));
    REQUIRE(channel->state() == State::kOpen);
  }
  static std::string sized(const std::string& body) {
    return std::string(2, '\0') + static_cast<char>(body.size() >> 8) +
           static_cast<char>(body.size() & 0xff) + body;
  }
  std::string frame(const std::string& body) { return sized(body) + seal.next_tag(body); }

  FrameSeal seal, hosts_seal;
};

std::string join_at(int port) { return R"({"type":"join","port":)" + std::to_string(port) + "}"; }

std::vector<int> ports_heard(ControlChannel& channel) {
  std::vector<int> ports;
  while (const auto message = channel.take()) ports.push_back(std::get<Join>(*message).port);
  return ports;
}

TEST_CASE("a frame that comes byte by byte is whole at its end") {
  Opened agent;
  for (const char byte : agent.frame(join_at(7))) {
    CHECK_FALSE(agent.channel->take());
    agent.say(std::string(1, byte));
  }
  CHECK(ports_heard(*agent.channel) == std::vector{7});
}

TEST_CASE(
    "a frame that is altered, repeated, left out, reordered or sent back ends the connection") {
  const auto after = [](const std::function<std::string(Opened&)>& attack) {
    Opened agent;
    agent.channel->send(Alive{});
    agent.say(agent.frame(join_at(1)));
    agent.say(attack(agent));
    CHECK(agent.channel->state() == State::kClosed);
    CHECK(agent.channel->problem() == "a frame was altered on its way");
    CHECK(agent.channel->peer_is_gone());  // the node connects again
    return ports_heard(*agent.channel);
  };
  const std::vector first{1};
  const std::string two = join_at(2), three = join_at(3);
  for (const std::size_t at :
       {std::size_t{4}, std::size_t{20}, 4 + two.size(), 4 + two.size() + 31}) {
    CHECK(after([&](Opened& agent) {
            std::string frame = agent.frame(two);
            frame[at] = static_cast<char>(frame[at] ^ 1);
            return frame;
          }) == first);
  }
  CHECK(after([&](Opened& agent) {
          const std::string frame = agent.frame(two);
          return frame + frame;
        }) == std::vector{1, 2});
  CHECK(after([&](Opened& agent) {
          const std::string second = agent.frame(two);
          return agent.frame(three) + second;
        }) == first);
  CHECK(after([](Opened& agent) { return agent.heard(); }) == first);  // reflected
  CHECK(after([&](Opened&) {  // recorded in another session with the same token and greeting
          Opened other;
          return other.frame(join_at(1)) + other.frame(two);
        }) == first);
  CHECK(after([&](Opened&) { return Opened::sized(two) + std::string(32, '\0'); }) == first);
}

TEST_CASE("a recorded session opens nothing") {
  Raw recorded(Side::kHost);
  Opened agent;
  const std::string frames = agent.frame(join_at(1));
  recorded.say(kHello);
  recorded.heard();
  recorded.say(ConnectionKeys("token", kHello, kHello).proof(ConnectionKeys::From::kAgent) +
               frames);
  CHECK(recorded.channel->objection() == ControlChannel::Objection::kWrongToken);
  CHECK_FALSE(recorded.channel->take());
}

TEST_CASE("a frame that is too large or malformed closes the connection") {
  Opened large;
  large.say(std::string("\x00\x10\x00\x01", 4));
  CHECK(large.channel->state() == State::kClosed);
  CHECK_THAT(large.channel->problem(), Contains("more than 1024 KiB"));
  Opened stranger;
  stranger.channel->limit(ControlChannel::kForStrangers);
  stranger.say(std::string("\x00\x00\x40\x01", 4));
  CHECK_THAT(stranger.channel->problem(), Contains("more than 16 KiB"));
  for (const std::string& body :
       {std::string("{}"), std::string(), std::string("\0", 1), std::string(60'000, '['),
        std::string(R"({"type":"join","port":70000})"),
        std::string(R"({"type":"join","port":1,"x":)") + std::string(20, '[') +
            std::string(20, ']') + "}"}) {
    Opened malformed;
    malformed.say(malformed.frame(body));
    CHECK(malformed.channel->state() == State::kClosed);
    CHECK_THAT(malformed.channel->problem(), Contains("malformed message"));
    CHECK_FALSE(malformed.channel->peer_is_gone());
  }
}

// What the kernel holds for it does not count.
TEST_CASE("one turn takes a bounded number of messages, and what is not taken is not read") {
  Opened agent;
  std::string flood;
  for (int i = 0; i < 3'000; ++i) flood += agent.frame(join_at(1));
  ::send(agent.fd, flood.data(), flood.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  for (int i = 0; i < 3; ++i) agent.channel->handle();
  CHECK(agent.channel->wanted() == 0);
  const auto once = ports_heard(*agent.channel).size();
  CHECK(once >= 256);
  CHECK(once < 600);
  CHECK(agent.channel->wanted() == POLLIN);
  agent.channel->handle();
  CHECK(ports_heard(*agent.channel).size() >= 256);
}

TEST_CASE("a peer that sends messages without end is closed, one that works hard is not") {
  Opened agent;
  std::size_t heard = 0;
  const auto say = [&](int count) {
    std::string burst;
    for (int i = 0; i < count; ++i) burst += agent.frame(join_at(1));
    agent.say(burst);
    heard += ports_heard(*agent.channel).size();
  };
  while (heard < 8'192) say(128);
  CHECK(agent.channel->state() == State::kOpen);
  for (int i = 0; i < 100'000 && agent.channel->state() == State::kOpen; ++i) say(128);
  CHECK(agent.channel->problem() == "the peer sends too many messages");
  CHECK_FALSE(agent.channel->peer_is_gone());
}

TEST_CASE("a peer that does not read is given up, before it takes much memory") {
  Opened agent;
  const Note note{std::string(4'000, 'x')};
  for (int i = 0; i < 10'000 && agent.channel->state() == State::kOpen; ++i)
    agent.channel->send(note);
  CHECK(agent.channel->state() == State::kClosed);
  CHECK(agent.channel->problem() == "the peer reads too slowly");
}

TEST_CASE("what is queued is sent before the end, and the end is a certain one") {
  Talk talk("t", "t");
  talk.serve();
  for (int i = 0; i < 200; ++i) talk.host->send(Note{std::string(4'000, 'x')});
  talk.host->finish_sending();
  int notes = 0;
  for (int i = 0; i < 10; ++i) {
    talk.serve();
    while (talk.agent->take()) ++notes;
  }
  CHECK(notes == 200);
  CHECK(talk.agent->state() == State::kClosed);
  CHECK(talk.agent->peer_is_gone());
}

TEST_CASE("a closed channel neither polls nor sends") {
  Talk talk("t", "t");
  talk.serve();
  talk.agent.reset();
  talk.host->handle();
  CHECK(talk.host->state() == State::kClosed);
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
