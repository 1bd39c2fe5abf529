// When the agent has the next round's workers started early.
#include <algorithm>

#include "launcher/agent/agent.h"

namespace ddp::launch {
namespace {

constexpr auto kNextLook = std::chrono::milliseconds(200);

}  // namespace

bool LocalElasticAgent::may_need_spares() const {
  const bool ending = end_signal_ != 0 || launcher_gone_ || !failures_.empty();
  if (phase_ != Phase::Running || ending) return false;
  const RestartRules& rules = plan_.restarts;
  const bool budget = restarts_ < rules.max_restarts || rules.healthy_after.count() > 0;
  return plan_.elastic || (budget && rules.policy != RestartPolicy::Never);
}

// The workers say when: they have started by then, and nobody else would read their offer.
void LocalElasticAgent::keep_spares() {
  if (!spares_due_ || suspended_ || processes_.now() < *spares_due_) return;
  spares_due_.reset();
  if (!may_need_spares()) return;
  std::vector<WorkerSpec> specs;
  for (const Worker& worker : group_.workers) {
    const bool offered = worker.state == WorkerState::Running &&
                         processes_.life_sign(worker.local_rank).takes_spares;
    if (!offered) spares_due_ = processes_.now() + kNextLook;
    specs.push_back(spare_spec(plan_, group_, worker));
  }
  if (spares_due_) return;
  spares_kept_ = true;
  processes_.keep_spares(specs);
}

}  // namespace ddp::launch
