// An agent of one node with a scripted operating system.
#pragma once

#include <string>

#include "launcher/agent/agent.h"
#include "launcher/base/run_result.h"
#include "launcher/rendezvous/local_rendezvous.h"
#include "tests/launcher/agent/fake_runner.h"
#include "tests/support/temp_folder.h"

namespace ddp::launch {

struct PhaseScene {
  FakeRunner os;
  JobPlan plan;
  test::TempFolder tmp;

  RunResult run(int workers, int max_restarts = 0) {
    plan.restarts.program = WorkerProgram::kTrainer;
    plan.command = {"/bin/worker", {"worker"}};
    plan.job.local_world_size = workers;
    plan.job.max_restarts = plan.restarts.max_restarts = max_restarts;
    plan.folder = RunFolder::create(tmp.path(), "run", RunFiles::kLogs);
    LocalRendezvous rendezvous("127.0.0.1", 0, /*agent_store=*/false, plan.restarts);
    return LocalElasticAgent(plan, rendezvous, os).run();
  }
  FakeRunner& gets(const Event& event) {
    os.script.emplace_back([=](FakeRunner&) { return std::vector{event}; });
    return os;
  }
};

inline std::string sent(int signal) { return "signal " + std::to_string(signal); }

}  // namespace ddp::launch
