#include "trainer/parallel/collectives/sign_of_life.h"

#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/catch.h"
#include "tests/support/loopback.h"

namespace ddp::train {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPatience{60'000};

}  // namespace

TEST_CASE("a process that runs gives a sign of life") {
  const EndEvent end;
  const LifeSign peer("127.0.0.1");
  CHECK(gives_sign_of_life("127.0.0.1", peer.port(), kPatience, end));
}

TEST_CASE("a process of this machine that has ended is known at once, without patience") {
  const EndEvent end;
  const auto begin = steady_clock::now();
  CHECK_FALSE(
      gives_sign_of_life("127.0.0.1", static_cast<uint16_t>(test::unused_port()), kPatience, end));
  CHECK(steady_clock::now() - begin < kPatience / 2);
}

// Its kernel accepts the connection, and no process closes it.
TEST_CASE("a process that stands still is given its time") {
  const EndEvent end;
  const test::LoopbackSocket still = test::bound_loopback_socket();
  REQUIRE(::listen(still.fd, 1) == 0);
  constexpr milliseconds kShort{150};
  const auto begin = steady_clock::now();
  CHECK_FALSE(gives_sign_of_life("127.0.0.1", static_cast<uint16_t>(still.port), kShort, end));
  CHECK(steady_clock::now() - begin >= kShort);
  ::close(still.fd);
}

}  // namespace ddp::train
