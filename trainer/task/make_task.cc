#include "trainer/task/causal_lm.h"
#include "trainer/task/task.h"

namespace ddp::train {

std::unique_ptr<Task> make_task(const Config& config,
                                const std::map<std::string, std::string>* metadata) {
  return std::make_unique<CausalLm>(config, metadata);
}

}  // namespace ddp::train
