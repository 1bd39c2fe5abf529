// A snapshot that cannot be used: the one before it is used instead, or the run ends with one line
// and touches nothing.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
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
void cut_within_header(const std::string& file) { fs::resize_file(file, 100); }
void make_empty(const std::string& file) { fs::resize_file(file, 0); }

void flip_bit(const std::string& file, std::uintmax_t at) {
  std::string bytes = read_bytes(file);
  bytes[at] = static_cast<char>(bytes[at] ^ 4);
  std::ofstream(file, std::ios::binary) << bytes;
}
void flip_bit_of_tensor(const std::string& file) { flip_bit(file, fs::file_size(file) - 1000); }
void flip_bit_of_header(const std::string& file) { flip_bit(file, 300); }
void flip_bit_of_length(const std::string& file) { flip_bit(file, 6); }

struct Damage {
  const char* name;
  std::function<void(const std::string&)> inflict;
};

const Damage kDamages[] = {
    {"truncated", truncate},
    {"cut within its header", cut_within_header},
    {"empty", make_empty},
    {"with a flipped bit in a tensor", flip_bit_of_tensor},
    {"with a flipped bit in the header", flip_bit_of_header},
    {"with a flipped bit in the header's length", flip_bit_of_length},
};

TEST_CASE("a damaged snapshot is named, and the one before it leads to the same end") {
  const Workspace half;
  const Unbroken unbroken(0);
  train_half(half);
  for (const auto& damage : kDamages) {
    INFO("snapshot " << damage.name);
    const Workspace place;
    fs::copy_file(half.snapshot(), place.snapshot());
    fs::copy_file(half.older(16), place.older(16));
    fs::copy_file(half / "snapshot.pt.manifest.json", place / "snapshot.pt.manifest.json");
    damage.inflict(place.snapshot());
    const auto run = succeed(alone(place));
    CHECK_THAT(run.err, Contains("damaged snapshot: " + place.snapshot() + ":"));
    CHECK_THAT(run.err, Contains("falling back to the previous snapshot: " + place.older(16)));
    CHECK(order_of_steps(run.out) == range_of(17, 40));
    CHECK(differences(unbroken.snapshot(), place.snapshot()) == Words{});
  }
}

TEST_CASE("two ranks fall back together") {
  const Workspace place;
  const Unbroken unbroken(2);
  succeed(launched(place, 2, kHalf));
  flip_bit_of_tensor(place.snapshot());
  const auto run = succeed(launched(place, 2));
  CHECK_THAT(run.err, Contains("falling back to the previous snapshot: " + place.older(16)));
  CHECK(order_of_steps(run.out) == range_of(17, 40));
  CHECK(differences(unbroken.snapshot(), place.snapshot()) == Words{});
}

TEST_CASE("a kill after a fallback goes on from it, too") {
  const Workspace place;
  const Unbroken unbroken(2);
  succeed(launched(place, 2, kHalf));
  flip_bit_of_tensor(place.snapshot());
  const auto run =
      succeed(launched(place, 2, {R"(trainer_config.fault_plan=["rank=1 step=18 kind=kill"])"},
                       {"--max_restarts=1"}));
  INFO(run.out << run.err);
  CHECK_THAT(run.err, Contains("restart 1 of 1"));
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

/// Expects exit code 1 and that neither file is touched; returns the errors said.
Words errors_without_a_good_snapshot(const Workspace& place, const ChildOptions& options) {
  const std::string newest = read_bytes(place.snapshot());
  const std::string before = read_bytes(place.older(16));
  const auto run = finish(options);
  INFO(run.err);
  CHECK(run.exit == 1);
  CHECK((read_bytes(place.snapshot()) == newest));
  CHECK((read_bytes(place.older(16)) == before));
  CHECK(place.new_files() == std::set<std::string>{"snapshot.pt", "snapshot.pt.step-16"});
  REQUIRE(!errors_of(run.err).empty());
  return errors_of(run.err);
}

TEST_CASE("when both snapshots are damaged the run fails with one error and touches neither") {
  const Workspace place;
  train_half_and_damage_all(place);
  const auto errors = errors_without_a_good_snapshot(place, alone(place));
  CHECK(errors.size() == 1);
  CHECK_THAT(errors.front(), Contains(place.older(16)) && Contains("no good snapshot is left"));
}

TEST_CASE("when both snapshots are damaged two ranks fail, and say why") {
  const Workspace place;
  train_half_and_damage_all(place);
  const auto errors = errors_without_a_good_snapshot(place, launched(place, 2));
  CHECK(std::any_of(errors.begin(), errors.end(), [](const auto& error) {
    return error.find("no good snapshot is left") != std::string::npos;
  }));
}

// The other ranks lose their connection to the one that fails: a consequence. A race, hence several
// tries.
TEST_CASE("ddp-run names the rank that failed, not one that lost its connection") {
  const Workspace place;
  train_half_and_damage_all(place);
  for (int attempt = 0; attempt < 4; ++attempt) {
    const auto run = finish(launched(place, 3));
    INFO(run.err);
    CHECK_THAT(run.err, Contains("ddp-run: the job failed; first failure: rank 0"));
  }
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
  SECTION("of a newer format") {
    rewrite_metadata(place.snapshot(), "format_version", "99");
    check_refused(place, {}, {place.snapshot(), "newer", "99"});
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
  check_refused(place, {}, {place.snapshot(), "newer"});
}

}  // namespace
}  // namespace ddp::test
