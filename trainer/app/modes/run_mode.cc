#include <fmt/format.h>
#include <torch/version.h>

#include <array>
#include <cstdio>

#include "launcher/worker_contract.h"
#include "trainer/app/modes.h"
#include "trainer/app/standard_output.h"
#include "trainer/report/report_page.h"
#include "trainer/runtime/process/build_commit.h"

namespace ddp::train {
namespace {

int run_version(const TrainerArgs&) {
  const std::string commit = kBuildCommit;
  print(fmt::format("trainer {} (LibTorch {}{})\n", DDP_VERSION, TORCH_VERSION,
                    commit.empty() ? "" : ", commit " + commit));
  return launch::kExitDone;
}

/// `trainer report RUN_DIR ... --output FILE`
int run_report(const TrainerArgs& args) {
  write_report(args.report_folders, args.report_output, "trainer " DDP_VERSION);
  print(fmt::format("{}\n", args.report_output));
  return launch::kExitDone;
}

int run_show(const TrainerArgs& args) {
  print(show_text(args));
  return launch::kExitDone;
}

int run_help(const TrainerArgs& args) {
  std::fputs(args.help_text.c_str(), stdout);
  finish_stdout();
  return launch::kExitDone;
}

}  // namespace

int run_mode(const TrainerArgs& args) {
  // In the order of Mode.
  constexpr std::array kModes = {run_train,  run_generate, run_eval,      run_predict,
                                 run_export, run_estimate, run_plan,      run_inspect,
                                 run_doctor, run_tokenize, run_data_show, run_report,
                                 run_show,   run_help,     run_version};
  static_assert(kModes.size() == static_cast<std::size_t>(Mode::kVersion) + 1);
  return kModes.at(static_cast<std::size_t>(args.mode))(args);
}

}  // namespace ddp::train
