#include <csignal>

#include "launcher/worker_contract.h"
#include "trainer/app/load_run.h"
#include "trainer/app/modes.h"
#include "trainer/app/train_job.h"
#include "trainer/app/warm_up.h"
#include "trainer/config/keys/trainer_keys.h"
#include "trainer/health/heartbeat_file.h"
#include "trainer/hydra/compose/sweep_plan.h"
#include "trainer/parallel/device/cuda_module.h"
#include "trainer/parallel/environment/dist_env.h"
#include "trainer/runtime/process/stop_signal.h"

namespace ddp::train {

int run_train(const TrainerArgs& args) {
  ::signal(SIGPIPE, SIG_IGN);     // a console that went away must not end the training
  ::signal(SIGXFSZ, SIG_IGN);     // nor a snapshot that is larger than a limit on file sizes
  ::signal(SIGUSR2, [](int) {});  // asked how it goes before there is anything to say
  end_when_preempted();
  if (is_warm_spare()) {
    warm_up(args);
    if (!become_worker()) return launch::kExitDone;
    beat_at_start(promise_of_start(nvidia_device_visible()));
  }
  if (args.multirun || asks_for_sweep(args.config, args.overrides, trainer_keys()))
    return run_multirun(args);
  const DistEnv env = DistEnv::from_environment();
  const JobResult result =
      train_job(load_run(args.config, args.overrides), env, OnFailure::kEndProcess);
  return result.stop_signal == 0 ? launch::kExitDone : launch::kExitPreempted;
}

}  // namespace ddp::train
