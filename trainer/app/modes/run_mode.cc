#include <cstdio>

#include "launcher/worker_contract.h"
#include "trainer/app/modes.h"
#include "trainer/runtime/log/finish_stdout.h"

namespace ddp::train {

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
      return run_show(args);
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
