// An agent without a host holds the nodes that would follow it.
#include "launcher/rendezvous/host/signpost.h"

#include <poll.h>

#include <memory>
#include <utility>

#include "launcher/base/system/sockets.h"
#include "tests/launcher/rendezvous/membership_job.h"

namespace ddp::launch::membership {
namespace {

// Both ends take turns, so that neither misses what the other has sent.
template <typename Done>
bool serve_until(Signpost& signpost, ControlChannel& node, bool beats, Done done) {
  const auto end = Clock::now() + seconds(20);
  while (!done() && Clock::now() < end) {
    if (beats) node.send(Alive{});
    node.handle();
    signpost.handle({});
    ::poll(nullptr, 0, 5);
  }
  return done();
}

TEST_CASE("a node that is held counts until it is silent") {
  constexpr milliseconds kPatience{300};
  Signpost signpost("", kPatience);
  const int fd = listen_for_peers("127.0.0.1");
  REQUIRE(fd >= 0);
  signpost.listen({fd});
  signpost.say({.id = "1", .run_id = "job"});
  ControlChannel node(begin_connect(*parse_address("127.0.0.1", port_of(fd))),
                      ControlChannel::Side::kAgent, "");
  node.send(Job(elastic(1, 2)).hello_of(2));
  const auto is_held = [&] { return signpost.followers().size() == 1; };
  REQUIRE(serve_until(signpost, node, /*beats=*/false, is_held));
  const auto later = Clock::now() + 2 * kPatience;
  serve_until(signpost, node, /*beats=*/true, [&] { return Clock::now() >= later; });
  CHECK(is_held());
  CHECK(serve_until(signpost, node, /*beats=*/false, [&] { return !is_held(); }));
}

}  // namespace
}  // namespace ddp::launch::membership
