// Groups of ranks along the coordinates of a mesh.
#include "trainer/parallel/mesh/mesh.h"

#include "tests/support/catch.h"
#include "tests/trainer/parallel/probe_output.h"

namespace ddp::train {

TEST_CASE("ranks that share layers are neighbours, copies of the model furthest apart") {
  const MeshShape shape{2, 3, 4};
  CHECK(shape.size() == 24);
  for (int rank = 0; rank < shape.size(); ++rank)
    CHECK(MeshPlace::of_rank(rank, shape).rank_in(shape) == rank);
  const auto place = MeshPlace::of_rank(18, shape);
  CHECK(place.data == 1);
  CHECK(place.stage == 1);
  CHECK(place.tensor == 2);
}

TEST_CASE("ranks that share experts are neighbours, and all ranks have micro-batches") {
  const MeshShape shape{2, 1, 1, 3};
  CHECK(shape.size() == 6);
  CHECK(shape.model_size() == 3);
  for (int rank = 0; rank < shape.size(); ++rank) {
    const auto place = MeshPlace::of_rank(rank, shape);
    CHECK(place.data == rank / 3);
    CHECK(place.expert == rank % 3);
    CHECK(place.rank_in(shape) == rank);
  }
}

TEST_CASE("the groups of a mesh have their ranks and no others") {
  CHECK(test::probe(4, "mesh 2x1x2,1x2x2,2x2x1,4x1x1,1x1x4") == "done\n");
  CHECK(test::probe(8, "mesh 2x2x2") == "done\n");
}

}  // namespace ddp::train
