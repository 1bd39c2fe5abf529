#include "launcher/rendezvous/round/epochs.h"

#include <climits>
#include <vector>

#include "tests/support/catch.h"

using namespace ddp::launch;

TEST_CASE("a granted epoch is greater than the authority's last one and those of the nodes") {
  CHECK(granted_after(-1, {}) == 0);
  CHECK(granted_after(7, std::vector<long long>{-1, 7, 3}) == 8);
  CHECK(granted_after(-1, std::vector<long long>{12}) == 13);  // it has lost its data
}

TEST_CASE(
    "a round is preceded by those of earlier hosts and of its own, not by its host's rivals'") {
  const long long last = tenure_after(5, "earlier"), own = tenure_after(last, "host");
  const long long rival = tenure_after(last, "rival");
  CHECK(may_precede(-1, own));
  CHECK(may_precede(5, own));
  CHECK(may_precede(last, own + 1));
  CHECK(may_precede(own, own + 1));
  CHECK_FALSE(may_precede(rival, own));
  CHECK_FALSE(may_precede(own, rival));
}

TEST_CASE("an authority does not continue from an epoch that no job can have reached") {
  const std::vector<long long> accepted{LLONG_MAX / 2, 1LL << 36, 5};
  CHECK(granted_after(-1, accepted) == 6);
  CHECK(granted_after(9, accepted) == 10);
}
