// Which snapshots are kept, found, put aside.
#include "trainer/snapshot/snapshot_folder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include "tests/support/catch.h"

#include "tests/trainer/snapshot/snapshot_files.h"
#include "tests/trainer/test_model.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using test::publish;
using test::quiet_log;
using test::read_file;
using test::sample_meta;
using test::sample_tensors;
using test::TempDir;

SnapshotEntry entry(int64_t step, std::optional<double> loss = {}) {
  return {"s", step, 0, loss, loss.value_or(0.0), "", 1};
}

void save_steps(SnapshotFolder& folder, std::initializer_list<int64_t> steps) {
  for (const int64_t step : steps) publish(folder, sample_meta(step), sample_tensors());
}

SnapshotMeta evaluated(int64_t step, double loss) {
  auto meta = sample_meta(step);
  meta.last_eval = EvalRecord{step, loss, loss, ""};
  return meta;
}

/// As a run does it: finds its snapshot or begins afresh, and saves with its id.
struct FolderRun {
  FolderRun(const TempDir& dir, int64_t limit, const RoundFence& round = {})
      : folder(dir.file("s.pt"), limit, log) {
    const auto found = folder.find();
    if (found) step = found->meta.step;
    folder.begin_run(config_to_json(Config()), "text", round);
  }
  void save(int64_t at, std::optional<double> loss = {}) {
    SnapshotMeta meta = loss ? evaluated(at, *loss) : sample_meta(at);
    meta.run_id = folder.run_id();
    publish(folder, meta, sample_tensors());
    step = at;
  }
  void save_until(int64_t last) {
    while (step < last) save(step + 20);
  }

  Log log = quiet_log();
  SnapshotFolder folder;
  int64_t step = 0;
};

/// A run of 100 steps with five files, of which the newest was deleted: the documented fresh start.
void delete_newest_of_100_steps(const TempDir& dir) {
  FolderRun(dir, 5).save_until(100);
  fs::remove(dir.file("s.pt"));
}

/// name -> bytes of the files that `dir` held at the time.
std::map<std::string, std::string> contents_of(const TempDir& dir,
                                               const std::set<std::string>& names) {
  std::map<std::string, std::string> contents;
  for (const auto& name : names) contents[name] = read_file(dir.file(name));
  return contents;
}

std::set<std::string> names_in(const TempDir& dir) {
  std::set<std::string> names;
  for (const auto& file : fs::directory_iterator(dir.path())) names.insert(file.path().filename());
  return names;
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

TEST_CASE("a process that was stopped does not replace what a later start has saved") {
  const TempDir dir;
  FolderRun(dir, 1).save(100);
  FolderRun stopped(dir, 1);
  FolderRun later(dir, 1);
  later.save(300);
  later.save(320);
  CHECK_THROWS_AS(stopped.save(200), SupersededError);
  CHECK_THROWS_WITH(stopped.save(400), Catch::Contains("start 3, step 320") &&
                                           Catch::Contains("start 2, step 400") &&
                                           Catch::Contains("nothing is lost"));
  CHECK(open_snapshot(dir.file("s.pt")).meta.step == 320);
  CHECK(names_in(dir) == std::set<std::string>{"s.pt", "s.pt.manifest.json"});
  later.save(340);
}

TEST_CASE("a process that was stopped finds out before the later start has saved anything") {
  const TempDir dir;
  FolderRun(dir, 1).save(100);
  FolderRun stopped(dir, 1);
  const FolderRun later(dir, 1);
  CHECK_THROWS_AS(stopped.save(200), SupersededError);
  CHECK(open_snapshot(dir.file("s.pt")).meta.step == 100);
}

TEST_CASE("a process that was stopped between its check and its rename does not succeed with it") {
  const TempDir dir;
  FolderRun(dir, 1).save(100);
  FolderRun stopped(dir, 1);
  auto meta = sample_meta(200);
  meta.run_id = stopped.folder.run_id();
  StateBuffer buffer(sample_tensors());
  buffer.copy_from(sample_tensors(), nullptr);
  // As if it slept from here until the later start has saved.
  const auto later = [&](PublishPhase phase) {
    if (phase != PublishPhase::kBeforeRename) return;
    const pid_t other = ::fork();
    if (other == 0) {
      FolderRun taking_over(dir, 1);
      taking_over.save(300);
      ::_exit(0);
    }
    ::waitpid(other, nullptr, 0);
    CHECK_FALSE(std::filesystem::exists(dir.file("s.pt.tmp." + std::to_string(::getpid()))));
  };
  CHECK_THROWS_AS(stopped.folder.publish(meta, buffer.tensors(), later), SupersededError);
  CHECK(open_snapshot(dir.file("s.pt")).meta.step == 300);
}

TEST_CASE("a round of a job does not begin, nor save, once a later round of it has begun") {
  const TempDir dir;
  FolderRun(dir, 1).save(100);
  FolderRun old(dir, 1, {"job", 4});
  const FolderRun later(dir, 1, {"job", 5});
  CHECK_THROWS_AS(old.save(200), SupersededError);
  CHECK_THROWS_WITH(FolderRun(dir, 1, {"job", 4}),
                    Catch::Contains("(epoch 5)") && Catch::Contains("older one (epoch 4)"));
  FolderRun(dir, 1, {"job", 5}).save(200);  // started again in the same round
  FolderRun(dir, 1, {"job", 7}).save(300);
}

TEST_CASE("a job that is started anew begins with small epochs, and may write") {
  const TempDir dir;
  FolderRun(dir, 1).save(100);
  FolderRun(dir, 1, {"job", 70}).save(200);
  FolderRun(dir, 1, {"another", 0}).save(300);
  FolderRun(dir, 1).save(400);                                           // without a launcher
  CHECK_THROWS_AS(FolderRun(dir, 1, {"another", -1}), SupersededError);  // still known
}

TEST_CASE("of two processes that started from scratch the one behind gives way") {
  const TempDir dir;
  FolderRun behind(dir, 1);
  FolderRun ahead(dir, 1);
  ahead.save(800);
  CHECK_THROWS_AS(behind.save(400), SupersededError);
  CHECK(open_snapshot(dir.file("s.pt")).meta.step == 800);
}

TEST_CASE("a file that would not be read back never takes the place of a good one") {
  const TempDir dir;
  FolderRun run(dir, 1);
  run.save(1);
  auto unreadable = sample_meta(2);
  unreadable.run_id = run.folder.run_id();
  unreadable.config_json = std::string(1'000'000, '[');
  CHECK_THROWS_AS(publish(run.folder, unreadable, sample_tensors()), RunError);
  CHECK(open_snapshot(dir.file("s.pt")).meta.step == 1);
  CHECK(names_in(dir) == std::set<std::string>{"s.pt", "s.pt.manifest.json"});
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

TEST_CASE(
    "after a fresh start a restart goes on from the new run, not from older files of the old one") {
  const TempDir dir;
  delete_newest_of_100_steps(dir);
  FolderRun(dir, 5).save_until(40);
  CHECK(FolderRun(dir, 5).step == 40);
}

TEST_CASE("files of another run are neither rotated away nor overwritten nor taken for the best") {
  const TempDir dir;
  {
    FolderRun old(dir, 5);
    old.save(20, 0.1);
    old.save_until(100);
  }
  fs::remove(dir.file("s.pt"));
  const std::set<std::string> old_names = {"s.pt.step-20", "s.pt.step-40", "s.pt.step-60",
                                           "s.pt.step-80"};
  const auto before = contents_of(dir, old_names);
  FolderRun fresh(dir, 2);
  fresh.save(20, 0.7);
  fresh.save_until(100);
  CHECK(contents_of(dir, old_names) == before);
  std::set<std::string> own = names_in(dir);
  for (const auto& name : old_names) own.erase(name);
  CHECK(own ==
        std::set<std::string>{"s.pt", "s.pt.manifest.json", "s.pt.step-20-2", "s.pt.step-80-2"});
  CHECK(best_entry(fresh.folder.entries())->file == "s.pt.step-20-2");
  CHECK(FolderRun(dir, 2).folder.entries().size() == 3);
}

TEST_CASE("a damaged newest snapshot leads to an older one of its own run, or to none") {
  const TempDir dir;
  delete_newest_of_100_steps(dir);
  FolderRun(dir, 5).save_until(40);
  std::string bytes = read_file(dir.file("s.pt"));
  dir.write("s.pt", bytes.substr(0, bytes.size() / 2));
  SECTION("an older one is there") { CHECK(FolderRun(dir, 5).step == 20); }
  SECTION("none is there") {
    fs::remove(dir.file("s.pt.step-20-2"));
    CHECK_THROWS_WITH(FolderRun(dir, 5), Catch::Contains("there is no older snapshot"));
  }
  SECTION("without the list nobody can tell which run it was") {
    fs::remove(dir.file("s.pt.manifest.json"));
    CHECK_THROWS_WITH(FolderRun(dir, 5),
                      Catch::Contains("without s.pt.manifest.json it is unknown") &&
                          Catch::Contains("; rename the one to resume from"));
  }
  SECTION("without the list the only older files may be of the run before") {
    fs::remove(dir.file("s.pt.manifest.json"));
    fs::remove(dir.file("s.pt.step-20-2"));
    CHECK_THROWS_WITH(FolderRun(dir, 5), Catch::Contains("it is unknown"));
  }
  SECTION("without the list its own header can tell") {
    fs::remove(dir.file("s.pt.manifest.json"));
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    dir.write("s.pt", bytes);
    CHECK(FolderRun(dir, 5).step == 20);
  }
}

TEST_CASE("a fresh start that is cut in its first save does not fall back to the old run") {
  const TempDir dir;
  delete_newest_of_100_steps(dir);
  { [[maybe_unused]] const FolderRun opened(dir, 5); }
  dir.write("s.pt.tmp.123", "cut");
  CHECK(FolderRun(dir, 5).step == 0);
}

TEST_CASE("a fresh start names the older files that it leaves alone, in one line") {
  const TempDir dir;
  delete_newest_of_100_steps(dir);
  Log log(true, dir.file("log"));
  SnapshotFolder folder(dir.file("s.pt"), 2, log);
  CHECK_FALSE(folder.find().has_value());
  folder.begin_run("{}", "text");
  log.flush_file();
  CHECK_THAT(read_file(dir.file("log")),
             Catch::Contains("older files of another run are left alone: s.pt.step-20, "
                             "s.pt.step-40, s.pt.step-60, s.pt.step-80; "));
}

TEST_CASE("an older file that the user puts in the newest one's place starts a run of its own") {
  const TempDir dir;
  FolderRun(dir, 5).save_until(100);
  fs::copy_file(dir.file("s.pt.step-40"), dir.file("s.pt"), fs::copy_options::overwrite_existing);
  const auto beyond = contents_of(dir, {"s.pt.step-60", "s.pt.step-80"});
  {
    FolderRun again(dir, 2);
    REQUIRE(again.step == 40);
    again.save_until(80);
  }
  CHECK(contents_of(dir, {"s.pt.step-60", "s.pt.step-80"}) == beyond);
  CHECK(FolderRun(dir, 2).step == 80);
  dir.write("s.pt", "damaged");
  CHECK(FolderRun(dir, 2).step == 60);
}

TEST_CASE("snapshots of a trainer that knew no runs belong together, and not to a later run") {
  const TempDir dir;
  {
    Log log = quiet_log();
    SnapshotFolder old(dir.file("s.pt"), 5, log);
    save_steps(old, {20, 40, 60});
  }
  SECTION("they go on") {
    FolderRun(dir, 2).save_until(80);
    CHECK(names_in(dir) == std::set<std::string>{"s.pt", "s.pt.step-60", "s.pt.manifest.json"});
  }
  SECTION("the newest one is damaged") {
    fs::remove(dir.file("s.pt.manifest.json"));
    dir.write("s.pt", "damaged");
    CHECK(FolderRun(dir, 2).step == 40);
  }
  SECTION("the newest one was deleted") {
    fs::remove(dir.file("s.pt"));
    FolderRun(dir, 2).save_until(60);
    CHECK(names_in(dir).contains("s.pt.step-20"));
    CHECK(FolderRun(dir, 2).folder.entries().size() == 2);
  }
}

TEST_CASE("a copy in memory of another run than that of the newest snapshot is passed over") {
  const TempDir dir;
  auto foreign = sample_meta(90);
  foreign.run_id = "another";
  test::save_snapshot(dir.file("copy"), foreign, sample_tensors());
  FolderRun run(dir, 2);
  run.save(20);
  CHECK(run.folder.find({{dir.file("copy")}})->meta.step == 20);
  fs::remove(dir.file("s.pt"));  // and with no file at all it is what was saved last
  Log log = quiet_log();
  CHECK(SnapshotFolder(dir.file("s.pt"), 2, log).find({{dir.file("copy")}})->meta.step == 90);
}

TEST_CASE("the same training has the same run id anywhere, another one or a second one has not") {
  const TempDir here, there;
  FolderRun first(here, 2), same(there, 2);
  CHECK(first.folder.run_id() == same.folder.run_id());
  CHECK(first.folder.run_id().size() == 16);
  Config other;
  other.trainer.seed = 7;
  CHECK(new_run_id(config_to_json(other), "text", 0) != first.folder.run_id());
  CHECK(new_run_id(config_to_json(Config()), "other", 0) != first.folder.run_id());
  first.save_until(40);
  fs::remove(here.file("s.pt"));
  CHECK(FolderRun(here, 2).folder.run_id() != first.folder.run_id());
}

TEST_CASE("a snapshot folder that cannot be written is found before training") {
  const TempDir dir;
  const std::string file = dir.write("file", "");
  CHECK_THROWS_AS(prepare_snapshot_folder(file + "/below/s.pt"), UserError);
  CHECK_THROWS_WITH(prepare_snapshot_folder("/proc/s.pt"),
                    Catch::Contains("trainer_config.snapshot_path"));
  CHECK_NOTHROW(prepare_snapshot_folder(dir.file("new/folder/s.pt")));
  CHECK(fs::is_empty(dir.file("new/folder")));
}

}  // namespace ddp::train
