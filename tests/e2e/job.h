// The two programs as their users start them, on a tiny model and a small text in a folder of the
// test's own.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/child_program.h"
#include "tests/support/skip.h"
#include "tests/support/temp_folder.h"

namespace ddp::test {

using Words = std::vector<std::string>;

inline Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Built programs; DDP_RUN_BIN and TRAINER_BIN in the environment name others.
std::string ddp_run_program();
std::string trainer_program();

/// The longest wait for any program here: far above what it needs, far below what hides a hang.
inline constexpr ChildProgram::Time kPatience{150'000};

/// A folder with text.txt and config.yaml; the programs run in it, so that relative paths stay
/// there.
class Workspace : public TempFolder {
 public:
  Workspace();

  std::string snapshot() const { return *this / "snapshot.pt"; }
  std::string older(int step) const { return *this / ("snapshot.pt.step-" + std::to_string(step)); }
  /// Names of the files in the folder, but for those that the constructor and every run write.
  std::set<std::string> new_files() const;
};

/// config.yaml of another task: `task`, the keys of its data and model, and those of a short run.
std::string tiny_config(const std::string& task, int max_steps, int batch_size, int workers = 1,
                        const std::string& learning_rate = "0.003");
/// Configuration of a language model on text.txt: 20 steps of 4 windows.
std::string tiny_text_config(const std::string& model, const std::string& learning_rate);

/// Steps in one epoch of the workspace's text with 4 rows per step; 8 rows: half of it.
inline constexpr int kStepsPerEpochOfFour = 34;

/// trainer alone, any mode.
ChildOptions trainer(const Workspace& place, const Words& arguments);
/// `trainer --config config.yaml overrides...` as one process without a launcher.
ChildOptions alone(const Workspace& place, const Words& overrides = {});
/// The same under ddp-run.
ChildOptions launched(const Workspace& place, int ranks, const Words& overrides = {},
                      const Words& launcher_options = {});

/// Runs to the end, all descendants included.
Finished finish(const ChildOptions& options);
/// As finish(), and requires exit code 0.
Finished succeed(const ChildOptions& options);

/// What each printed training step said of its numbers (loss, lr, grad norm), without times; a step
/// that was printed twice with different numbers has two entries.
using Steps = std::map<int, std::set<std::string>>;
Steps steps_of(const std::string& output);
/// The place's main.log: what a killed rank had not yet shown on the console is there.
std::string log_of(const Workspace& place);
/// Steps in the order they were printed.
std::vector<int> order_of_steps(const std::string& output);
/// Numbers of "Step n | Train Loss x", by step.
std::map<int, double> losses_by_step(const std::string& output);
/// "Eval Loss x | n tokens" of each evaluation line.
Words evaluations_of(const std::string& output);
/// Lines that begin with `error:`.
Words errors_of(const std::string& err);

/// The steps first, first + 1, ..., last.
std::vector<int> range_of(int first, int last);

}  // namespace ddp::test
