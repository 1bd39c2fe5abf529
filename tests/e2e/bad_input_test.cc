// Mistakes of the user: one line that begins with "error:", the right exit code, nothing trained or
// saved. One of each kind: tests/trainer/app/refused_*_test.cc have the others in one process.
#include <filesystem>

#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"

namespace ddp::test {
namespace {

using Catch::Contains;

void check_nothing_saved(const Workspace& place, const std::set<std::string>& own_files) {
  CHECK(place.new_files() == own_files);
}

/// One line and the exit code.
void check_one_line(const Finished& run, int exit, const Words& said) {
  INFO(run.err);
  CHECK(run.exit == exit);
  CHECK(lines_of(run.err).size() == 1);
  CHECK(errors_of(run.err).size() == 1);
  for (const auto& text : said) CHECK_THAT(run.err, Contains(text));
}

/// One line, and what ddp-run reports of the failed job.
void check_one_line_and_report(const Finished& run, int exit, const Words& said) {
  INFO(run.err);
  CHECK(run.exit == exit);
  REQUIRE(errors_of(run.err).size() == 1);
  for (const auto& text : said) CHECK_THAT(errors_of(run.err).front(), Contains(text));
  for (const auto& line : lines_of(run.err)) {
    const bool of_report = line.starts_with("ddp-run: ") || line.starts_with("Root Cause ") ||
                           line == "[0]:" || line.starts_with("  ");
    CHECK((of_report || line == errors_of(run.err).front()));
  }
}

TEST_CASE("a configuration file that cannot be used is named with the place of the mistake") {
  const Workspace place;
  place.write("typo.yaml", "data_config: {path: text.txt}\ntrainer_config:\n  max_stepz: 3\n");
  check_one_line(finish(trainer(place, {"--config", "typo.yaml"})), 2,
                 {"typo.yaml:3:", "max_stepz", "did you mean 'trainer_config.max_steps'?"});
  check_nothing_saved(place, {"typo.yaml"});
}

TEST_CASE("an environment of a launcher that makes no sense is refused") {
  const Workspace place;
  auto options = alone(place);
  options.unset.clear();
  options.set.insert(
      {{"RANK", "0"}, {"WORLD_SIZE", "0"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}});
  check_one_line(finish(options), 2, {"WORLD_SIZE='0'"});
  check_nothing_saved(place, {});
}

#ifndef DDP_SANITIZED
TEST_CASE("every mode reports a deleted working directory") {
  const Workspace place;
  const auto nowhere = in_shell("mkdir gone && cd gone && rmdir ../gone && exec \"$@\"",
                                trainer(place, {"--version"}));
  check_one_line(finish(nowhere), 2, {"error: the current directory no longer exists"});
}
#endif

TEST_CASE("a GPU that is not there is refused") {
  const Workspace place;
  check_one_line(finish(alone(place, {"trainer_config.device=cuda"})), 2,
                 {"trainer_config.device=cuda"});
  auto options = launched(place, 1);
  options.argv[1] = "--nproc_per_node=gpu";
  check_one_line(finish(options), 2, {"--nproc_per_node=gpu"});
  check_nothing_saved(place, {});
}

// A copy of the program without its CUDA module next to it, on a machine with two device files.
TEST_CASE("a rank per GPU is refused by a trainer without CUDA, not trained on the CPU") {
  const Workspace place;
  const std::string copy = place / "trainer";
  std::filesystem::copy_file(trainer_program(), copy);
  std::filesystem::create_directories(place / "gpus/dev");
  for (const char* file : {"gpus/dev/nvidia0", "gpus/dev/nvidia1"}) place.write(file, "");
  const auto of_two = [&](const Words& words, const std::string& workers) {
    auto options = launched(place, 2, words);
    options.argv[1] = "--nproc_per_node=" + workers;
    for (auto& word : options.argv) {
      if (word == trainer_program()) word = copy;
    }
    options.set["DDP_DEVICE_ROOT"] = place / "gpus";
    options.set.erase("CUDA_VISIBLE_DEVICES");
    options.unset.emplace_back("CUDA_VISIBLE_DEVICES");
    return options;
  };
  check_one_line_and_report(finish(of_two({}, "gpu")), 2,
                            {"a rank for each GPU (--nproc_per_node=gpu)", "built without CUDA",
                             "trainer_config.device=cpu"});
  CHECK(!std::filesystem::exists(place.snapshot()));
  const Words short_run = {"trainer_config.max_steps=2"};
  succeed(of_two(joined(short_run, {"trainer_config.device=cpu"}), "gpu"));
  CHECK_THAT(succeed(of_two(short_run, "2")).err, Contains("Training on the CPU, because"));
}

TEST_CASE("ranks that all find the same mistake say it once") {
  const Workspace place;
  place.write("short.txt", "Shorter than one block.");
  check_one_line_and_report(finish(launched(place, 2, {"gpt_config.n_embd=33"})), 2,
                            {"n_embd", "33"});
  check_one_line_and_report(finish(launched(place, 2, {"data_config.path=short.txt"})), 2,
                            {"short.txt"});
  check_one_line_and_report(finish(launched(place, 2, {"trainer_config.batch_size=1000"})), 2,
                            {"batch_size 1000"});
  const std::string offload = "distributed_config.offload=optimizer";
  check_one_line_and_report(finish(launched(place, 2, {offload})), 2, {offload});
  check_nothing_saved(place, {"short.txt"});
}

TEST_CASE("an unwritable snapshot folder ends a job of two ranks at once") {
  const Workspace place;
  ChildProgram job(launched(place, 2, {"trainer_config.snapshot_path=text.txt/below/snapshot.pt"}));
  job.wait_all_gone();
  const int exit = job.wait_exit();
  check_one_line_and_report({exit, job.out(), job.err()}, 2, {"trainer_config.snapshot_path"});
}

TEST_CASE("a mode refuses what it cannot use") {
  const Workspace place;
  check_one_line(finish(trainer(place, {"inspect", "text.txt"})), 2, {"text.txt"});
}

TEST_CASE("eval refuses data of which nothing can be evaluated, with advice that it can take") {
  const Workspace place;
  succeed(alone(place, {"trainer_config.max_steps=1"}));
  const auto refused = [&](const std::string& name, const std::string& text, const Words& said) {
    place.write(name, text);
    const auto run = finish(trainer(place, {"eval", "--snapshot", "snapshot.pt", "--data", name}));
    check_one_line(run, 2, said);
    CHECK_THAT(run.err, !Contains("with --data") && !Contains("on_bad_sample"));
  };
  refused("empty.txt", "", {"--data: ", "empty.txt: is too short to evaluate on"});
  refused("none.json", "[]", {"none.json: has no row with a text"});
  refused("none.json", " [\n]\n", {"none.json: has no row with a text"});
  refused("bad.jsonl", "7\n", {"bad.jsonl:1: ", "correct the row"});
  place.write("rows.jsonl", "{\"text\": \"" + std::string(200, 'a') + "\"}\n");
  const Words rows = {"trainer_config.max_steps=1", "data_config.path=rows.jsonl",
                      "trainer_config.snapshot_path=rows.pt"};
  succeed(alone(place, rows));
  place.write("rows.jsonl", "7\n");
  const auto run = finish(trainer(place, {"eval", "--snapshot", "rows.pt"}));
  check_one_line(run, 2, {"data_config.path: ", "rows.jsonl:1: ", "correct the row"});
  CHECK_THAT(run.err, !Contains("on_bad_sample"));
}

// After exit code 2 ddp-run would not restart the group.
TEST_CASE("a file that the system refuses for a transient reason ends a failed run") {
  const Workspace place;
  auto options = alone(place, {"trainer_config.max_steps=1"});
  const Words limited = {"bash", "-c", "ulimit -n 6; exec \"$@\"", "bash"};
  options.argv.insert(options.argv.begin(), limited.begin(), limited.end());
  check_one_line(finish(options), 1, {"Too many open files"});
  std::filesystem::remove(place / "config.yaml");
  std::filesystem::create_symlink("/proc/self/mem", place / "config.yaml");  // EIO, first byte
  check_one_line(finish(alone(place)), 1, {"error: config.yaml: ", "Input/output error"});
  check_one_line_and_report(finish(launched(place, 1)), 1, {"error: rank 0: config.yaml: "});
}

TEST_CASE("a program that cannot be started is refused as a shell does") {
  const Workspace place;
  auto options = launched(place, 1);
  options.argv = {ddp_run_program(), "--standalone", "no-such-program"};
  check_one_line(finish(options), 127, {"no-such-program"});
  options.argv.back() = "./text.txt";
  check_one_line(finish(options), 126, {"./text.txt"});
  check_nothing_saved(place, {});
}

}  // namespace
}  // namespace ddp::test
