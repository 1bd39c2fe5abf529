#include "tests/trainer/app/in_process.h"

#include <filesystem>

#include "tests/support/catch.h"

#include "launcher/worker_contract.h"
#include "trainer/app/exit_report.h"
#include "trainer/app/load_run.h"
#include "trainer/app/modes.h"
#include "trainer/app/train_job.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/runtime/error.h"

namespace ddp::test {
namespace {

using namespace ddp::train;

class InFolder {
 public:
  explicit InFolder(const std::string& folder) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
  }
  ~InFolder() { std::filesystem::current_path(before_); }
  InFolder(const InFolder&) = delete;
  InFolder& operator=(const InFolder&) = delete;

 private:
  std::filesystem::path before_;
};

int run(const TrainerArgs& args) {
  if (args.mode != Mode::kTrain) return run_mode(args);
  train_job(load_run(args.config, args.overrides), DistEnv{}, OnFailure::kThrow);
  return launch::kExitDone;
}

}  // namespace

Finished in_process(const ChildOptions& command) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);  // the same digits everywhere
  [[maybe_unused]] static const bool known = (add_model_keys(), true);
  const InFolder here(command.folder);
  std::vector<const char*> argv;
  for (const auto& word : command.argv) argv.push_back(word.c_str());
  try {
    return {run(parse_trainer_args(static_cast<int>(argv.size()), argv.data())), "", ""};
  } catch (const UserError&) {
    return {launch::kExitUsage, "", "error: " + current_exception_text() + "\n"};
  } catch (...) {
    return {launch::kExitFailed, "", "error: " + current_exception_text() + "\n"};
  }
}

void succeed_in_process(const ChildOptions& command) {
  const Finished run = in_process(command);
  INFO(run.err);
  REQUIRE(run.exit == 0);
}

void check_refused(const Finished& run, const Words& said, int exit) {
  INFO(run.err);
  CHECK(run.exit == exit);
  REQUIRE(lines_of(run.err).size() == 1);
  for (const auto& text : said) CHECK_THAT(run.err, Catch::Contains(text));
}

std::string refusal_of(const ChildOptions& command) {
  const Finished run = in_process(command);
  check_refused(run, {});
  return run.err;
}

}  // namespace ddp::test
