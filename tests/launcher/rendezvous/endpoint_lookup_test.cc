// How often the names of endpoints are looked up: each time is a process.
#include "launcher/rendezvous/wire/endpoint_lookup.h"

#include <poll.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "launcher/rendezvous/follow/host_search.h"
#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"

namespace ddp::launch {
namespace {

using std::chrono::milliseconds;

/// A machine whose getent knows no name and writes down that it was asked; without `getent` it has
/// none.
class Machine {
 public:
  explicit Machine(bool getent) {
    if (getent) folder_.write("getent", "#!/bin/sh\necho >> " + folder_ / "asked" + "\n", true);
    ::setenv("PATH", folder_.path().c_str(), /*overwrite=*/1);
  }
  ~Machine() { ::setenv("PATH", path_.c_str(), /*overwrite=*/1); }

  long times_asked() const {
    std::ifstream asked(folder_ / "asked");
    return std::count(std::istreambuf_iterator<char>(asked), {}, '\n');
  }

 private:
  std::string path_ = ::getenv("PATH");
  test::TempFolder folder_;
};

std::vector<ResolvedEndpoint> look_up(const std::string& host) {
  const std::vector<Endpoint> endpoints{{host, 29400}};
  EndpointLookup lookup(endpoints);
  while (!lookup.done()) {
    std::vector<pollfd> fds;
    lookup.add_poll_fds(fds);
    ::poll(fds.data(), fds.size(), 10'000);
    lookup.handle(fds);
  }
  return lookup.results();
}

TEST_CASE("without getent numeric addresses and localhost are known") {
  const Machine machine(/*getent=*/false);
  using Addresses = std::vector<std::string>;
  CHECK(look_up("10.0.0.1").front().addresses == Addresses{"10.0.0.1"});
  CHECK(look_up("fd00::1").front().addresses == Addresses{"fd00::1"});
  CHECK(look_up("localhost").front().addresses == Addresses{"127.0.0.1", "::1"});
  CHECK(look_up("node1").front().addresses.empty());
  CHECK(look_up("node1").front().lacks_getent);
}

TEST_CASE("a numeric address starts no process") {
  const Machine machine(/*getent=*/true);
  CHECK(look_up("10.0.0.1").front().addresses.size() == 1);
  CHECK(machine.times_asked() == 0);
  CHECK(look_up("node1").front().addresses.empty());
  CHECK(machine.times_asked() == 1);
}

// At once, then after 20, 40, 80, ... ms. The 7th comes after 1.26 s; the endpoints themselves are
// tried each 250 ms at least.
TEST_CASE("a search looks a name up less and less often") {
  const Machine machine(/*getent=*/true);
  HostSearch search(SearchSettings{.endpoints = {{"node1", 29400}}});
  const auto began = Clock::now();
  search.begin(/*may_host=*/false);
  while (machine.times_asked() < 7 && Clock::now() < began + std::chrono::seconds(60)) {
    std::vector<pollfd> fds;
    search.add_poll_fds(fds);
    const auto left = std::chrono::ceil<milliseconds>(*search.deadline() - Clock::now());
    ::poll(fds.data(), fds.size(), static_cast<int>(std::max<long>(left.count(), 0)));
    search.handle(fds);
  }
  CHECK(machine.times_asked() == 7);
  CHECK(Clock::now() - began >= milliseconds(1'260));
}

TEST_CASE(
    "endpoints that do not change are looked up less and less often, and after a change again") {
  EndpointWatch watch(std::vector<Endpoint>{{"node1", 29400}});
  const auto check_pause = [&](const std::string& address, milliseconds pause) {
    const auto before = Clock::now();
    watch.set({{.endpoint = {"node1", 29400}, .addresses = {address}}});
    CHECK(*watch.deadline() >= before + pause);
    CHECK(*watch.deadline() <= Clock::now() + pause);
  };
  for (const std::string address : {"10.0.0.1", "10.0.0.2"}) {
    for (const int pause : {500, 1'000, 2'000, 4'000, 8'000, 15'000, 15'000})
      check_pause(address, milliseconds(pause));
  }
}

}  // namespace
}  // namespace ddp::launch
