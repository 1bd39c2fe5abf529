#include <fmt/format.h>

#include "launcher/worker_contract.h"
#include "trainer/app/modes.h"
#include "trainer/app/standard_output.h"
#include "trainer/report/report_page.h"

namespace ddp::train {

int run_report(const TrainerArgs& args) {
  write_report(args.report_folders, args.report_output, "trainer " DDP_VERSION);
  print(fmt::format("{}\n", args.report_output));
  return launch::kExitDone;
}

}  // namespace ddp::train
