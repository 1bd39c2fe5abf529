#include "trainer/metrics/throughput.h"

#include "tests/support/catch.h"

#include "trainer/metrics/text.h"

namespace ddp::train {

TEST_CASE("numbers are shortened to three digits and a unit") {
  CHECK(short_number(12) == "12");
  CHECK(short_number(9876) == "9.88k");
  CHECK(short_number(27'453'440) == "27.45M");
  CHECK(short_number(1.5e9) == "1.50G");
}

TEST_CASE("what is counted is one or several") {
  CHECK(counted(1, "rank") == "1 rank");
  CHECK(counted(2, "rank") == "2 ranks");
  CHECK(counted(0, "micro-batch") == "0 micro-batches");
}

TEST_CASE("a lap counts its own tokens and the average all of them") {
  Throughput throughput;
  throughput.add(100);
  CHECK(throughput.lap() > 0);
  CHECK(throughput.lap() == 0);
  CHECK(throughput.average() > 0);
}

}  // namespace ddp::train
