// Mistakes of the user: one line that begins with "error:", the right exit code, nothing trained or
// saved.
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

void check_override_refused(const std::string& override_text, const Words& said) {
  const Workspace place;
  check_one_line(finish(alone(place, {override_text})), 2, said);
  check_nothing_saved(place, {});
}

TEST_CASE("a configuration file that cannot be used is named with the place of the mistake") {
  const Workspace place;
  place.write("broken.yaml", "data_config:\n  path: text.txt\n  block_size: [32\ngpt_config: {}\n");
  place.write("typo.yaml", "data_config: {path: text.txt}\ntrainer_config:\n  max_stepz: 3\n");
  place.write("type.yaml", "data_config: {path: text.txt}\ntrainer_config:\n  max_steps: lots\n");
  check_one_line(finish(trainer(place, {"--config", "missing.yaml"})), 2,
                 {"missing.yaml", "No such file"});
  check_one_line(finish(trainer(place, {"--config", "broken.yaml"})), 2,
                 {"broken.yaml:3:", "not valid YAML", "is never closed"});
  check_one_line(finish(trainer(place, {"--config", "typo.yaml"})), 2,
                 {"typo.yaml:3:", "max_stepz", "did you mean 'trainer_config.max_steps'?"});
  check_one_line(finish(trainer(place, {"--config", "type.yaml"})), 2,
                 {"type.yaml:3:", "lots", "max_steps"});
  check_nothing_saved(place, {"broken.yaml", "typo.yaml", "type.yaml"});
}

TEST_CASE("an override that cannot be used is refused") {
  check_override_refused("trainer_config.max_stepz=3",
                         {"max_stepz", "did you mean 'trainer_config.max_steps'?"});
  check_override_refused("trainer_config.max_steps=lots", {"lots", "trainer_config.max_steps"});
  check_override_refused("gpt_config.n_embd=33", {"n_embd", "33", "n_head=2"});
}

TEST_CASE("a text that is too short is refused") {
  const Workspace place;
  place.write("short.txt", "Shorter than one block.");
  check_one_line(finish(alone(place, {"data_config.path=short.txt"})), 2,
                 {"short.txt", "block_size"});
  check_nothing_saved(place, {"short.txt"});
}

TEST_CASE("a batch that is larger than the training set is refused") {
  check_override_refused("trainer_config.batch_size=100000", {"batch_size 100000", "138"});
}

TEST_CASE("a text that is not there is refused") {
  check_override_refused("data_config.path=missing.txt", {"missing.txt", "No such file"});
}

TEST_CASE("an environment of a launcher that makes no sense is refused") {
  const Workspace place;
  auto options = alone(place);
  options.unset.clear();
  options.set.insert(
      {{"RANK", "0"}, {"WORLD_SIZE", "0"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}});
  check_one_line(finish(options), 2, {"WORLD_SIZE='0'"});
  options.set["WORLD_SIZE"] = "2";
  options.set["RANK"] = "2";
  check_one_line(finish(options), 2, {"RANK='2'"});
  check_nothing_saved(place, {});
}

TEST_CASE("places that cannot be written are found before training starts") {
  for (const char* path : {"text.txt/below/snapshot.pt", "/proc/no/snapshot.pt", "tmp"}) {
    check_override_refused("trainer_config.snapshot_path=" + std::string(path),
                           {"trainer_config.snapshot_path"});
  }
  for (const char* path : {"text.txt/below", "/proc/no"}) {
    check_override_refused("hydra.run.dir=" + std::string(path), {"hydra.run.dir"});
  }
}

TEST_CASE("a GPU that is not there is refused") {
  const Workspace place;
  check_override_refused("trainer_config.device=cuda", {"trainer_config.device=cuda"});
  auto options = launched(place, 1);
  options.argv[1] = "--nproc_per_node=gpu";
  check_one_line(finish(options), 2, {"--nproc_per_node=gpu"});
  check_nothing_saved(place, {});
}

TEST_CASE("offload is refused on a CPU, and where ranks divide layers") {
  const std::string offload = "distributed_config.offload=optimizer";
  check_override_refused(offload, {offload, "this run computes on the CPU; remove offload, or",
                                   "distributed_config.strategy=zero1"});
  check_override_refused("distributed_config.offload=weights", {"weights", "none | optimizer"});
  const Workspace place;
  check_one_line(finish(alone(place, {offload, "distributed_config.tensor=2"})), 2,
                 {"distributed_config.offload", "not supported with tensor=2"});
  check_one_line_and_report(finish(launched(place, 2, {offload})), 2, {offload});
  check_nothing_saved(place, {});
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
  check_nothing_saved(place, {"short.txt"});
}

TEST_CASE("an unwritable snapshot folder ends a job of two ranks at once") {
  const Workspace place;
  ChildProgram job(launched(place, 2, {"trainer_config.snapshot_path=text.txt/below/snapshot.pt"}));
  job.wait_all_gone();
  const int exit = job.wait_exit();
  check_one_line_and_report({exit, job.out(), job.err()}, 2, {"trainer_config.snapshot_path"});
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

TEST_CASE("inspect refuses what is not a snapshot") {
  const Workspace place;
  place.write("empty", "");
  check_one_line(finish(trainer(place, {"inspect", "text.txt"})), 2, {"text.txt"});
  check_one_line(finish(trainer(place, {"inspect", "empty"})), 1, {"empty"});
  check_one_line(finish(trainer(place, {"inspect", "tmp"})), 2, {"tmp"});
  check_one_line(finish(trainer(place, {"inspect", "missing.pt"})), 2, {"missing.pt"});
}

TEST_CASE("generate refuses a prompt that the vocabulary does not have") {
  const Workspace place;
  succeed(alone(place, {"trainer_config.max_steps=1"}));
  const auto refused = [&](const std::string& prompt, const Words& said) {
    const auto run =
        finish(trainer(place, {"generate", "--snapshot", "snapshot.pt", "--prompt", prompt}));
    check_one_line(run, 2, said);
    CHECK(run.out.empty());
  };
  refused("the\u20acbrook", {"'\u20ac'", "vocabulary"});
  refused("", {"--prompt"});
  refused("the \xff", {"UTF-8"});
}

}  // namespace
}  // namespace ddp::test
