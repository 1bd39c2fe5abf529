#include "launcher/logs/repeat_folding.h"

#include "tests/support/catch.h"

#include <random>

namespace ddp::launch {
namespace {

using std::chrono::milliseconds;
using Lines = std::vector<std::string>;

struct FoldingScene {
  explicit FoldingScene(int ranks)
      : folder(milliseconds(100), [this](const auto& who, std::string_view line) {
          std::string text;
          for (const int rank : who) text += std::to_string(rank);
          given.push_back(text + ":" + std::string(line));
        }) {
    for (int rank = 0; rank < ranks; ++rank) folder.join(rank);
  }
  void says(int rank, std::string_view line) {
    folder.add(rank, line, now);
    folder.settle(now);
  }
  void passes(milliseconds time) {
    now += time;
    folder.settle(now);
  }
  Lines given;
  RepeatFolding::Time now{};
  RepeatFolding folder;
};

TEST_CASE("a line that all ranks say is given out once, at once") {
  FoldingScene scene(3);
  scene.says(0, "a");
  scene.says(2, "a");
  CHECK(scene.given.empty());
  scene.says(1, "a");
  CHECK(scene.given == Lines{"012:a"});
  CHECK_FALSE(scene.folder.deadline());
}

TEST_CASE("a line waits for its equals no longer than it may") {
  FoldingScene scene(2);
  scene.says(0, "a");
  REQUIRE(scene.folder.deadline());
  CHECK(*scene.folder.deadline() == scene.now + milliseconds(100));
  scene.passes(milliseconds(99));
  CHECK(scene.given.empty());
  scene.passes(milliseconds(1));
  CHECK(scene.given == Lines{"0:a"});
  scene.says(1, "a");
  scene.passes(milliseconds(100));
  CHECK(scene.given == Lines{"0:a", "1:a"});
}

TEST_CASE("lines that differ are given out as soon as no rank can say them any more") {
  FoldingScene scene(2);
  scene.says(0, "a");
  scene.says(0, "b");
  scene.says(1, "b");
  CHECK(scene.given == Lines{"0:a", "01:b"});
}

TEST_CASE("the order of one rank's lines is never changed") {
  FoldingScene scene(2);
  scene.says(0, "a");
  scene.says(0, "b");
  scene.says(1, "b");
  scene.says(1, "a");
  scene.folder.flush();
  CHECK(scene.given == Lines{"0:a", "01:b", "1:a"});
}

TEST_CASE("a line that one rank alone says does not keep the next ones from being folded") {
  FoldingScene scene(3);
  for (const int rank : {0, 2}) scene.says(rank, "step 1");
  scene.says(1, "saving");
  scene.says(1, "step 1");
  CHECK(scene.given == Lines{"1:saving", "012:step 1"});
}

TEST_CASE("a rank that says a line twice is shown twice") {
  FoldingScene scene(2);
  for (const int rank : {0, 0, 1, 1}) scene.says(rank, "a");
  CHECK(scene.given == Lines{"01:a", "01:a"});
}

TEST_CASE("nobody waits for a rank that has left, or for others when alone") {
  FoldingScene scene(2);
  scene.says(0, "a");
  scene.folder.leave(1);
  scene.folder.settle(scene.now);
  CHECK(scene.given == Lines{"0:a"});
  scene.says(0, "b");
  CHECK(scene.given.size() == 2);
}

TEST_CASE("what is held is bounded") {
  FoldingScene scene(2);
  const std::string line(1 << 20, 'x');
  for (int i = 0; i < 10; ++i) scene.says(0, line + std::to_string(i));
  CHECK(scene.given.size() >= 6);
}

TEST_CASE("of random lines each rank's come out complete and in order") {
  std::mt19937 random(1);
  FoldingScene scene(4);
  std::vector<Lines> said(4);
  for (int i = 0; i < 5000; ++i) {
    const int rank = static_cast<int>(random() % 4);
    const std::string line(1, static_cast<char>('a' + random() % 3));
    said[static_cast<std::size_t>(rank)].push_back(line);
    scene.says(rank, line);
    if (random() % 50 == 0) scene.passes(milliseconds(60));
  }
  scene.folder.flush();
  std::vector<Lines> seen(4);
  for (const auto& text : scene.given) {
    const auto colon = text.find(':');
    for (const char rank : text.substr(0, colon)) {
      seen[static_cast<std::size_t>(rank - '0')].push_back(text.substr(colon + 1));
    }
  }
  CHECK(seen == said);
  CHECK(scene.given.size() < 4500);  // and some were folded
}

}  // namespace
}  // namespace ddp::launch
