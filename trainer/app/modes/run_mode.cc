#include <fmt/format.h>
#include <torch/version.h>

#include <cstdio>

#include "launcher/worker_contract.h"
#include "trainer/app/modes.h"
#include "trainer/app/standard_output.h"
#include "trainer/report/report_page.h"
#include "trainer/runtime/process/build_commit.h"

namespace ddp::train {
namespace {

int run_version() {
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

}  // namespace

int run_mode(const TrainerArgs& args) {
  switch (args.mode) {
    case Mode::kTrain:
      return run_train(args);
    case Mode::kGenerate:
      return run_generate(args);
    case Mode::kEval:
      return run_eval(args);
    case Mode::kPredict:
      return run_predict(args);
    case Mode::kExport:
      return run_export(args);
    case Mode::kEstimate:
      return run_estimate(args);
    case Mode::kPlan:
      return run_plan(args);
    case Mode::kInspect:
      return run_inspect(args);
    case Mode::kDoctor:
      return run_doctor(args);
    case Mode::kTokenize:
      return run_tokenize(args);
    case Mode::kDataShow:
      return run_data_show(args);
    case Mode::kReport:
      return run_report(args);
    case Mode::kShow:
      print(show_text(args));
      return launch::kExitDone;
    case Mode::kVersion:
      return run_version();
    case Mode::kHelp:
      std::fputs(args.help_text.c_str(), stdout);
      finish_stdout();
      return launch::kExitDone;
  }
  return launch::kExitFailed;
}

}  // namespace ddp::train
