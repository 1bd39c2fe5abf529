#include <fmt/format.h>

#include "trainer/runtime/error.h"
#include "trainer/task/predictor.h"

namespace ddp::train {

std::unique_ptr<Predictor> make_predictor(const PredictRequest& request) {
  switch (request.config.task) {
    case TaskKind::kMaskedLm:
      return make_masked_predictor(request);
    case TaskKind::kCausalLm:
      throw UserError(
          "predict: a snapshot of task causal_lm continues texts; use trainer generate");
    case TaskKind::kTextClassification:
    case TaskKind::kImageClassification:
      break;
  }
  throw UserError(fmt::format("predict: task {} is not built yet", task_name(request.config.task)));
}

}  // namespace ddp::train
