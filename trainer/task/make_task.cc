#include <fmt/format.h>

#include "trainer/runtime/error.h"
#include "trainer/task/causal_lm.h"
#include "trainer/task/image_classification.h"
#include "trainer/task/masked_lm.h"
#include "trainer/task/task.h"

namespace ddp::train {

std::unique_ptr<Task> make_task(const Config& config,
                                const std::map<std::string, std::string>* metadata) {
  switch (config.task) {
    case TaskKind::kCausalLm:
      return make_causal_lm(config, metadata);
    case TaskKind::kMaskedLm:
      return make_masked_lm(config, metadata);
    case TaskKind::kImageClassification:
      return make_image_classification(config, metadata);
    case TaskKind::kTextClassification:
      break;
  }
  throw UserError(
      fmt::format("task: {} is not built yet; choose causal_lm", task_name(config.task)));
}

}  // namespace ddp::train
