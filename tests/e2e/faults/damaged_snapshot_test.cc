// A snapshot that cannot be used: the one before it is used instead, or the run ends with one line
// and touches nothing.
#include <filesystem>
#include <fstream>
#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"
#include "tests/e2e/unbroken.h"

namespace ddp::test {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

const Words kHalf = {"trainer_config.max_steps=20", "trainer_config.save_every_steps=8"};

/// A workspace with a snapshot of step 20 and the one before it, of step 16.
void train_half(const Workspace& place) { succeed(alone(place, kHalf)); }

void truncate(const std::string& file) { fs::resize_file(file, fs::file_size(file) / 2); }
void flip_bit(const std::string& file, std::uintmax_t at) {
  std::string bytes = read_bytes(file);
  bytes[at] = static_cast<char>(bytes[at] ^ 4);
  std::ofstream(file, std::ios::binary) << bytes;
}
void flip_bit_of_tensor(const std::string& file) { flip_bit(file, fs::file_size(file) - 1000); }
// tests/trainer/snapshot/ has every kind of damage.
TEST_CASE(
    "a damaged snapshot is named, and two ranks go on from the one before, also when killed") {
  const Workspace place;
  const Unbroken unbroken(2);
  succeed(launched(place, 2, kHalf));
  flip_bit_of_tensor(place.snapshot());
  const auto run =
      succeed(launched(place, 2, {R"(trainer_config.fault_plan=["rank=1 step=18 kind=kill"])"},
                       {"--max_restarts=1"}));
  INFO(run.out << run.err);
  CHECK_THAT(run.err, Contains("damaged snapshot: " + place.snapshot() + ":") &&
                          Contains("falling back to the previous snapshot: " + place.older(16)) &&
                          Contains("restart 1 of 1"));
  CHECK(steps_of(run.out).begin()->first == 17);
  CHECK(differences(unbroken.snapshot(), place.snapshot()) == Words{});
}

TEST_CASE("after a fallback the next save does not replace the good snapshot by the damaged one") {
  const Workspace place;
  train_half(place);
  truncate(place.snapshot());
  succeed(alone(place, {"trainer_config.max_steps=24", "trainer_config.save_every_steps=8"}));
  CHECK(is_whole(place.snapshot()));
  CHECK(is_whole(place.older(16)));
}

/// Snapshots of steps 20 and 16, both unusable.
void train_half_and_damage_all(const Workspace& place) {
  train_half(place);
  truncate(place.snapshot());
  flip_bit_of_tensor(place.older(16));
}

TEST_CASE("when both snapshots are damaged the run fails with one error and touches neither") {
  const Workspace place;
  train_half_and_damage_all(place);
  const std::string newest = read_bytes(place.snapshot());
  const std::string before = read_bytes(place.older(16));
  const auto alone_run = finish(alone(place));
  CHECK(alone_run.exit == 1);
  REQUIRE(errors_of(alone_run.err).size() == 1);
  CHECK_THAT(errors_of(alone_run.err).front(),
             Contains(place.older(16)) && Contains("no good snapshot is left"));
  // The other ranks lose their connection to the one that fails: a consequence, and a race.
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto run = finish(launched(place, 3));
    INFO(run.err);
    CHECK(run.exit == 1);
    CHECK_THAT(run.err, Contains("ddp-run: the job failed; first failure: rank 0") &&
                            Contains("no good snapshot is left"));
  }
  CHECK((read_bytes(place.snapshot()) == newest));
  CHECK((read_bytes(place.older(16)) == before));
  CHECK(place.new_files() == std::set<std::string>{"snapshot.pt", "snapshot.pt.step-16"});
}

TEST_CASE("a damaged snapshot without an older one fails the run") {
  const Workspace place;
  succeed(alone(place, {"trainer_config.max_steps=2"}));
  fs::remove(place.older(16));
  flip_bit_of_tensor(place.snapshot());
  const auto run = finish(alone(place));
  CHECK(run.exit == 1);
  CHECK(lines_of(run.err).size() == 1);
  CHECK_THAT(run.err, Catch::StartsWith("error: " + place.snapshot()) &&
                          Contains("there is no older snapshot"));
}

/// Expects that the snapshot of two steps is refused with exit code 2 and one line, and stays as it
/// is.
void check_refused(const Workspace& place, const Words& overrides, const Words& said) {
  const std::string before = read_bytes(place.snapshot());
  const auto run = finish(alone(place, overrides));
  INFO(run.err);
  CHECK(run.exit == 2);
  CHECK(lines_of(run.err).size() == 1);
  CHECK(errors_of(run.err).size() == 1);
  for (const auto& text : said) CHECK_THAT(run.err, Contains(text));
  CHECK((read_bytes(place.snapshot()) == before));
}

TEST_CASE("a snapshot that does not fit the configuration is refused in one line") {
  const Workspace place;
  succeed(alone(place, {"trainer_config.max_steps=2"}));
  SECTION("of another model") {
    check_refused(place, {"gpt_config.n_embd=64"},
                  {place.snapshot(), "another model", "n_embd", "32", "64"});
    check_refused(place, {"gpt_config.n_layer=3"}, {place.snapshot(), "another model", "n_layer"});
    check_refused(place, {"data_config.block_size=16"},
                  {place.snapshot(), "another model", "block_size"});
  }
  SECTION("of a text with other characters") {
    place.write("other.txt", std::string(2000, 'z') + std::string(2000, 'Q'));
    check_refused(place, {"data_config.path=other.txt"}, {"other.txt", "vocabulary"});
  }
}

TEST_CASE("a newer snapshot is not taken for a damaged one: the older one is no way out") {
  const Workspace place;
  train_half(place);
  rewrite_metadata(place.snapshot(), "format_version", "99");
  check_refused(place, {}, {place.snapshot(), "newer", "99"});
}

}  // namespace
}  // namespace ddp::test
