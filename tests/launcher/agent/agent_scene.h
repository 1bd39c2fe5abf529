// An agent of one node with a scripted operating system.
#pragma once

#include <functional>
#include <string>

#include "launcher/agent/agent.h"
#include "launcher/base/run_result.h"
#include "launcher/rendezvous/local_rendezvous.h"
#include "launcher/report/job_status.h"
#include "tests/launcher/agent/fake_runner.h"
#include "tests/support/temp_folder.h"

namespace ddp::launch {

struct AgentScene {
  FakeRunner os;
  JobPlan plan;
  bool serves_store = false;
  std::function<JobStatus()> status{};  // while it runs

  AgentScene() {
    plan.command = {"/bin/worker", {"worker", "--rank=${local_rank}"}};
    plan.restarts.delay = {};
  }
  /// With a LocalRendezvous or one derived from it.
  template <typename Meeting = LocalRendezvous>
  RunResult run(int workers, int max_restarts = 0) {
    plan.job.local_world_size = workers;
    plan.job.max_restarts = plan.restarts.max_restarts = max_restarts;
    Meeting rendezvous("127.0.0.1", 0, serves_store, plan.restarts);
    return run_at(rendezvous);
  }
  RunResult run_at(Rendezvous& rendezvous) {
    LocalElasticAgent agent(plan, rendezvous, os);
    status = [&] { return agent.status(); };
    return agent.run();
  }
};

/// Its workers are trainer's and have log files.
struct PhaseScene : AgentScene {
  test::TempFolder tmp;

  PhaseScene() {
    plan.restarts.program = WorkerProgram::kTrainer;
    plan.folder = RunFolder::create(tmp.path(), "run", RunFiles::kLogs);
  }
};

inline std::string sent(int signal) { return "signal " + std::to_string(signal); }

}  // namespace ddp::launch
