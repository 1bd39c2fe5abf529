#include "launcher/rendezvous/epochs.h"

#include <climits>
#include <vector>

#include "tests/support/catch.h"

using namespace ddp::launch;

TEST_CASE("a granted epoch is greater than the authority's last one and those of the nodes") {
  CHECK(granted_after(-1, {}) == 0);
  CHECK(granted_after(7, std::vector<long long>{-1, 7, 3}) == 8);
  CHECK(granted_after(-1, std::vector<long long>{12}) == 13);  // it has lost its data
}

TEST_CASE("an authority does not continue from an epoch that no job can have reached") {
  const std::vector<long long> accepted{LLONG_MAX / 2, 1LL << 36, 5};
  CHECK(granted_after(-1, accepted) == 6);
  CHECK(granted_after(9, accepted) == 10);
}
