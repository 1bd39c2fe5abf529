// Which snapshots are kept, found, put aside.
#include "trainer/snapshot/snapshot_folder.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include "tests/support/catch.h"

#include "tests/trainer/snapshot/snapshot_files.h"
#include "trainer/model/load/run_folder.h"
#include "trainer/runtime/error.h"
#include "trainer/snapshot/remote_snapshots.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using test::evaluated;
using test::names_in;
using test::publish;
using test::quiet_log;
using test::read_file;
using test::sample_meta;
using test::sample_tensors;
using test::save_steps;
using test::TempDir;

SnapshotEntry entry(int64_t step, std::optional<double> loss = {}) {
  return {"s", step, 0, loss, loss.value_or(0.0), "", 1};
}

}  // namespace

TEST_CASE("the last ones and the best are kept") {
  using Indices = std::vector<std::size_t>;
  CHECK(superseded({}, 2).empty());
  CHECK(superseded({entry(3), entry(2)}, 2).empty());
  CHECK(superseded({entry(4), entry(3), entry(2), entry(1)}, 2) == Indices{3, 2});
  CHECK(superseded({entry(4), entry(3), entry(2, 1.0), entry(1, 2.0)}, 2) == Indices{3});
  CHECK(superseded({entry(4), entry(3, 0.5), entry(2, 1.0)}, 2) == Indices{2});
  CHECK(superseded({entry(2), entry(1)}, 0) == Indices{1});
  const std::vector<SnapshotEntry> equal = {entry(2, 1.0), entry(1, 1.0)};
  CHECK(best_entry(equal)->step == 1);
}

TEST_CASE("NaN and evaluations on other data than the newest's are not the best") {
  auto old_data = entry(2, 0.25);
  old_data.basis = "other data";
  const std::vector<SnapshotEntry> entries = {entry(5), entry(4, std::nan("")), entry(3, 1.0),
                                              old_data, entry(1, 2.0)};
  REQUIRE(best_entry(entries) != nullptr);
  CHECK(best_entry(entries)->step == 3);
  CHECK(best_entry({entry(1, std::nan(""))}) == nullptr);
}

TEST_CASE("older snapshots carry their step, and the manifest names all of them") {
  const TempDir dir;
  Log log = quiet_log();
  SnapshotFolder folder(dir.file("s.pt"), 3, log);
  save_steps(folder, {1, 2});
  publish(folder, evaluated(3, 0.5), sample_tensors());
  save_steps(folder, {4, 5, 6, 7});
  CHECK(names_in(dir) == std::set<std::string>{"s.pt", "s.pt.step-6", "s.pt.step-5", "s.pt.step-3",
                                               "s.pt.manifest.json"});
  CHECK(open_snapshot(dir.file("s.pt")).meta.step == 7);
  CHECK(open_snapshot(dir.file("s.pt.step-3")).meta.step == 3);
  const auto manifest = nlohmann::json::parse(read_file(folder.manifest_path()));
  CHECK(manifest["newest"] == "s.pt");
  CHECK(manifest["best"] == "s.pt.step-3");
  std::vector<int64_t> steps;
  for (const auto& snapshot : manifest["snapshots"]) steps.push_back(snapshot["step"]);
  CHECK(steps == std::vector<int64_t>{7, 6, 5, 3});
}

TEST_CASE("a run that goes on knows the files of the one before it") {
  const TempDir dir;
  Log log = quiet_log();
  {
    SnapshotFolder first(dir.file("s.pt"), 2, log);
    save_steps(first, {1, 2});
  }
  SnapshotFolder second(dir.file("s.pt"), 2, log);
  REQUIRE(second.find().has_value());
  save_steps(second, {3});
  CHECK(names_in(dir) == std::set<std::string>{"s.pt", "s.pt.step-2", "s.pt.manifest.json"});
}

TEST_CASE("saving the same step again keeps the one before it") {
  const TempDir dir;
  Log log = quiet_log();
  SnapshotFolder folder(dir.file("s.pt"), 2, log);
  save_steps(folder, {1, 2, 2});
  CHECK(names_in(dir) == std::set<std::string>{"s.pt", "s.pt.step-1", "s.pt.manifest.json"});
}

TEST_CASE("a damaged newest snapshot is put aside and the one before it found") {
  const TempDir dir;
  Log log = quiet_log();
  SnapshotFolder folder(dir.file("s.pt"), 3, log);
  save_steps(folder, {1, 2, 3});
  dir.write("s.pt", read_file(dir.file("s.pt")).substr(0, 100));
  const auto found = folder.find();
  REQUIRE(found.has_value());
  CHECK(found->meta.step == 2);
  CHECK(names_in(dir) ==
        std::set<std::string>{"s.pt", "s.pt.damaged", "s.pt.step-1", "s.pt.manifest.json"});
  CHECK(found->path == dir.file("s.pt"));
  CHECK(folder.find()->meta.step == 2);  // a restart before the next save
  save_steps(folder, {4});
  CHECK(folder.find()->meta.step == 4);
  CHECK(names_in(dir).contains("s.pt.step-2"));
}

TEST_CASE("with a copy in memory a damaged newest snapshot leaves its name to the one before it") {
  const TempDir dir;
  Log log = quiet_log();
  test::save_snapshot(dir.file("copy"), sample_meta(9), sample_tensors());
  SnapshotFolder folder(dir.file("s.pt"), 3, log);
  save_steps(folder, {1, 2, 3});
  dir.write("s.pt", read_file(dir.file("s.pt")).substr(0, 100));
  CHECK(folder.find({{dir.file("copy")}})->meta.step == 9);
  CHECK(open_snapshot(dir.file("s.pt")).meta.step == 2);
  CHECK(folder.entries().front().step == 2);
}

TEST_CASE("a copy in memory that was cut short is no damage") {
  const TempDir dir;
  Log log = quiet_log();
  test::save_snapshot(dir.file("copy"), sample_meta(9), sample_tensors());
  std::string bytes = read_file(dir.file("copy"));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  dir.write("copy", bytes);
  SnapshotFolder folder(dir.file("s.pt"), 3, log);
  CHECK_FALSE(folder.find({{dir.file("copy")}}).has_value());
  save_steps(folder, {1});
  CHECK(folder.find({{dir.file("copy")}})->meta.step == 1);
  CHECK(names_in(dir) == std::set<std::string>{"copy", "s.pt", "s.pt.manifest.json"});
}

TEST_CASE("a limit of one keeps the best besides") {
  const TempDir dir;
  Log log = quiet_log();
  SnapshotFolder folder(dir.file("s.pt"), 1, log);
  publish(folder, evaluated(1, 0.5), sample_tensors());
  publish(folder, evaluated(2, 0.7), sample_tensors());
  save_steps(folder, {3});
  CHECK(names_in(dir) == std::set<std::string>{"s.pt", "s.pt.step-1", "s.pt.manifest.json"});
  publish(folder, evaluated(4, 0.4), sample_tensors());
  CHECK(names_in(dir) == std::set<std::string>{"s.pt", "s.pt.manifest.json"});
}

TEST_CASE("looking whether the folder can be written does not remove the sign of a cut save") {
  const TempDir dir;
  const std::string sign = dir.file("s.pt.tmp.") + std::to_string(::getpid());
  dir.write("s.pt.tmp." + std::to_string(::getpid()), "part");
  prepare_snapshot_folder(dir.file("s.pt"));
  CHECK(read_file(sign) == "part");
}

TEST_CASE("when no snapshot is good the run refuses to overwrite them") {
  const TempDir dir;
  Log log = quiet_log();
  SnapshotFolder folder(dir.file("s.pt"), 2, log);
  CHECK_FALSE(folder.find().has_value());
  dir.write("s.pt", "");
  CHECK_THROWS_WITH(folder.find(), Catch::Contains("move it away"));
  dir.write("s.pt.step-1", "x");
  CHECK_THROWS_WITH(folder.find(), Catch::Contains("move the files away"));
  CHECK(names_in(dir) == std::set<std::string>{"s.pt", "s.pt.step-1"});
}

TEST_CASE("only the system's word that there is no snapshot begins a new run") {
  const TempDir dir;
  Log log = quiet_log();
  SnapshotFolder folder(dir.file("s.pt"), 2, log);
  save_steps(folder, {1});
  for (const char* name : {"s.pt", "s.pt.manifest.json"}) {
    INFO(name);
    fs::rename(dir.file(name), dir.file("aside"));
    fs::create_symlink(name, dir.file(name));  // ELOOP
    SnapshotFolder next(dir.file("s.pt"), 2, log);
    const auto start = [&] {
      next.find();
      next.begin_run("{}", "text");
    };
    CHECK_THROWS_WITH(start(), Catch::Contains(std::string(name) + ": cannot be read") &&
                                   Catch::Contains("nothing was changed"));
    fs::remove(dir.file(name));
    fs::rename(dir.file("aside"), dir.file(name));
  }
  CHECK(folder.find()->meta.step == 1);
}

TEST_CASE("a run's folder is its best snapshot where the run was to end with it, else the newest") {
  for (const bool wanted : {false, true}) {
    const TempDir dir;
    Log log = quiet_log();
    SnapshotFolder folder(dir.file("s.pt"), 2, log);
    Config config;
    config.trainer.load_best_model_at_end = wanted;
    for (const auto& [step, loss] : {std::pair{1, 0.5}, {2, 0.7}}) {
      auto meta = evaluated(step, loss);
      meta.config_json = config_to_json(config);
      publish(folder, meta, sample_tensors());
    }
    CHECK(is_run_folder(dir.path()));
    CHECK(FetchedSnapshot(dir.path()).file() == dir.file(wanted ? "s.pt.step-1" : "s.pt"));
    CHECK(FetchedSnapshot(dir.file("s.pt")).file() == dir.file("s.pt"));
  }
}

TEST_CASE("a checkpoint of PyTorch is named, with the script that converts it") {
  const TempDir dir;
  Log log = quiet_log();
  SnapshotFolder folder(dir.file("s.pt"), 2, log);
  dir.write("s.pt", std::string("PK\3\4") + std::string(100, 'x'));
  CHECK_THROWS_WITH(folder.find(), Catch::Contains("s.pt: is a file of PyTorch") &&
                                       Catch::Contains("scripts/convert_checkpoint.py") &&
                                       Catch::Contains("trainer_config.snapshot_path"));
}

TEST_CASE("a manifest that is a folder is named") {
  const TempDir dir;
  fs::create_directory(dir.file("s.pt.manifest.json"));
  CHECK_THROWS_WITH(read_manifest(dir.file("s.pt.manifest.json")),
                    Catch::Contains("s.pt.manifest.json: is a folder"));
}

TEST_CASE("an older snapshot alone is used only when a save was cut between the two renames") {
  const TempDir dir;
  Log log = quiet_log();
  SnapshotFolder folder(dir.file("s.pt"), 2, log);
  save_steps(folder, {1});
  fs::rename(dir.file("s.pt"), older_snapshot_path(dir.file("s.pt"), 1));
  CHECK_FALSE(folder.find().has_value());  // the user deleted the newest one: start afresh
  dir.write("s.pt.tmp.123", "cut");
  REQUIRE(folder.find().has_value());
  CHECK(folder.find()->meta.step == 1);
}

TEST_CASE("a whole copy in memory that is newer wins, an unfinished one is passed over") {
  const TempDir dir;
  Log log = quiet_log();
  SnapshotFolder folder(dir.file("s.pt"), 2, log);
  save_steps(folder, {5});
  test::save_snapshot(dir.file("ram.0"), sample_meta(7), sample_tensors());
  test::save_snapshot(dir.file("ram.1"), sample_meta(8), sample_tensors());
  dir.write("ram.1", std::string(8, '\0') + read_file(dir.file("ram.1")).substr(8));
  const SnapshotFolder::Copies copies = {
      {dir.file("ram.0")}, {dir.file("ram.1")}, {dir.file("none")}};
  CHECK(folder.find(copies)->path == dir.file("ram.0"));
  save_steps(folder, {9});
  CHECK(folder.find(copies)->path == dir.file("s.pt"));
}

TEST_CASE("a file that is no snapshot of the run is never deleted") {
  const TempDir dir;
  Log log = quiet_log();
  for (const char* name : {"s.pt.step-", "s.pt.step-x", "s.pt.step-1.bak", "s.pt.step-77"})
    dir.write(name, "mine");
  SnapshotFolder folder(dir.file("s.pt"), 1, log);
  save_steps(folder, {1, 2, 3});
  for (const char* name : {"s.pt.step-", "s.pt.step-x", "s.pt.step-1.bak", "s.pt.step-77"})
    CHECK(read_file(dir.file(name)) == "mine");
}

TEST_CASE("a snapshot folder that cannot be written is found before training") {
  const TempDir dir;
  const std::string file = dir.write("file", "");
  CHECK_THROWS_AS(prepare_snapshot_folder(file + "/below/s.pt"), UserError);
  CHECK_THROWS_WITH(prepare_snapshot_folder("/proc/s.pt"),
                    Catch::Contains("trainer_config.snapshot_path"));
  CHECK_NOTHROW(prepare_snapshot_folder(dir.file("new/folder/s.pt")));
  dir.write("s.pt.probe.tmp." + std::to_string(::getpid()), "of a killed process");
  prepare_snapshot_folder(dir.file("s.pt"));
  CHECK(names_in(dir) == std::set<std::string>{"file", "new"});
  CHECK(fs::is_empty(dir.file("new/folder")));
}

}  // namespace ddp::train
