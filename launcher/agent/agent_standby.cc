// When the agent has standby workers started for the next round.

#include "launcher/agent/agent.h"

namespace ddp::launch {
namespace {

constexpr auto kNextLook = std::chrono::milliseconds(200);

}  // namespace

bool LocalElasticAgent::may_need_standby() const {
  const bool ending = end_signal_ != 0 || guardian_gone_ || !failures_.empty();
  if (phase_ != Phase::kRunning || ending) return false;
  const RestartRules& rules = plan_.restarts;
  const bool budget = restarts_ < rules.max_restarts || rules.healthy_after.count() > 0;
  return plan_.elastic || (budget && rules.policy != RestartPolicy::kNever);
}

// The workers choose the time with a heartbeat, once they have started up themselves.
void LocalElasticAgent::keep_standby() {
  if (!standby_due_ || suspended_ || processes_.now() < *standby_due_) return;
  standby_due_.reset();
  if (!may_need_standby()) return;
  std::vector<WorkerSpec> specs;
  for (const Worker& worker : group_.workers) {
    const bool offered = worker.state == WorkerState::kRunning &&
                         processes_.life_sign(worker.local_rank).offers_standby;
    if (!offered) standby_due_ = processes_.now() + kNextLook;
    specs.push_back(standby_spec(plan_, group_, worker));
  }
  if (standby_due_) return;
  standby_kept_ = true;
  processes_.keep_standby(specs);
}

}  // namespace ddp::launch
