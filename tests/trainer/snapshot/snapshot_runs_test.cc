// Which run a folder's snapshots belong to, and which of several processes may write there.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include "tests/support/catch.h"
#include "tests/support/skip.h"

#include "tests/trainer/snapshot/snapshot_files.h"
#include "trainer/runtime/error.h"

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
using test::TempDir;

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

bool changes_names(uint64_t call) {
  switch (call) {
    case SYS_openat:
    case SYS_fsync:
    case SYS_linkat:
    case SYS_renameat2:
    case SYS_unlinkat:
#ifdef SYS_rename
    case SYS_open:
    case SYS_link:
    case SYS_rename:
    case SYS_unlink:
#endif
      return true;
    default:
      return false;
  }
}

}  // namespace

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
  buffer.begin_copy(sample_tensors(), nullptr);
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

// The stops are system calls that enter the kernel; what only reads changes nothing.
TEST_CASE("a save that was suspended at any system call changes no file of a later start") {
  constexpr int kNoTrace = 77;
  for (int stop = 0;; ++stop) {
    const TempDir dir;
    FolderRun(dir, 2).save(4);
    FolderRun stopped(dir, 2);
    stopped.save(7, 0.4);
    const pid_t child = ::fork();
    if (child == 0) {
      if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(kNoTrace);
      ::raise(SIGSTOP);
      try {
        stopped.save(14, 0.5);
      } catch (const SupersededError&) {
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status))
      return ddp::test::say_skipped("ptrace: this system does not let a process trace its child");
    ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD);
    for (int entered = -1; entered < stop && WIFSTOPPED(status);) {
      ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
      ::waitpid(child, &status, 0);
      __ptrace_syscall_info call{};
      ::ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof call, &call);
      if (!WIFSTOPPED(status) || call.op != PTRACE_SYSCALL_INFO_ENTRY) continue;
      if (changes_names(call.entry.nr)) ++entered;
    }
    if (WIFEXITED(status)) {
      CHECK(stop > 8);
      return;
    }
    FolderRun later(dir, 2);
    later.save(28, 0.6);
    later.save(30);
    auto names = names_in(dir);
    std::erase_if(names, [](const auto& name) { return name.find(".tmp.") != name.npos; });
    const auto before = contents_of(dir, names);
    ::ptrace(PTRACE_DETACH, child, nullptr, nullptr);
    ::waitpid(child, &status, 0);
    INFO("stop " << stop);
    CHECK(names_in(dir) == names);
    CHECK((contents_of(dir, names) == before));
  }
}

TEST_CASE("a list that a stopped process is about to put in place is taken from it") {
  const TempDir dir;
  FolderRun(dir, 1).save(100);
  constexpr const char* kOfOtherProcess = "s.pt.manifest.json.tmp.1";
  dir.write(kOfOtherProcess, "{}");
  const FolderRun later(dir, 1);
  CHECK_FALSE(std::filesystem::exists(dir.file(kOfOtherProcess)));
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
  SECTION("without the list its run is unknown") {
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

}  // namespace ddp::train
