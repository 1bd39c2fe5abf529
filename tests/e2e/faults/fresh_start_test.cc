// Several runs, one after the other, with one snapshot_path.
#include <algorithm>
#include <filesystem>
#include <map>
#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"
#include "tests/e2e/unbroken.h"

namespace ddp::test {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

Words up_to_step(int step, int limit) {
  return {"trainer_config.max_steps=" + std::to_string(step),
          "trainer_config.save_total_limit=" + std::to_string(limit)};
}

using Files = std::map<std::string, std::string>;

/// Name and bytes of the snapshots other than the newest one.
Files older_files(const Workspace& place) {
  Files files;
  for (const auto& entry : fs::directory_iterator(place.path())) {
    const std::string name = entry.path().filename();
    if (name.starts_with("snapshot.pt.step-")) files[name] = read_bytes(entry.path());
  }
  return files;
}

bool holds(const Files& all, const Files& some) {
  return std::all_of(some.begin(), some.end(), [&](const auto& file) {
    const auto found = all.find(file.first);
    return found != all.end() && found->second == file.second;
  });
}

TEST_CASE("after a fresh start a restart goes on from the new run, and the old files stay") {
  constexpr int limit = 3;
  const Workspace place;
  succeed(alone(place, up_to_step(25, limit)));
  const Files old = older_files(place);
  REQUIRE(old.size() + 1 == static_cast<std::size_t>(limit));
  fs::remove(place.snapshot());
  const auto fresh = succeed(alone(place, up_to_step(10, limit)));
  CHECK(order_of_steps(fresh.out) == range_of(1, 10));
  CHECK_THAT(fresh.err, Contains("training starts from scratch; older files of another run are "
                                 "left alone: snapshot.pt.step-"));
  const auto next = succeed(alone(place, up_to_step(15, limit)));
  CHECK(order_of_steps(next.out) == range_of(11, 15));
  CHECK_THAT(next.err, !Contains("left alone"));
  CHECK(inspect(place, place.snapshot()).at("step") == 15);
  CHECK(holds(older_files(place), old));
}

TEST_CASE("a snapshot_path that is a link stays one, and its target gets the snapshots") {
  const Workspace place;
  fs::create_directory(place / "disk");
  fs::create_symlink("disk/real.pt", place.snapshot());
  succeed(alone(place, up_to_step(10, 2)));
  CHECK(order_of_steps(succeed(alone(place, up_to_step(12, 2))).out) == range_of(11, 12));
  CHECK(fs::is_symlink(place.snapshot()));
  CHECK(is_whole(place / "disk/real.pt"));
  CHECK(is_whole(place / "disk/real.pt.step-10"));
}

}  // namespace
}  // namespace ddp::test
