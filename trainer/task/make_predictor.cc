#include <fmt/format.h>

#include "trainer/runtime/error.h"
#include "trainer/task/predictor.h"

namespace ddp::train {

namespace {

void require(const std::string& value, const char* option, const PredictRequest& request) {
  if (!value.empty()) return;
  throw UserError(
      fmt::format("predict: task {} takes {}", task_name(request.model.config.task), option));
}

}  // namespace

std::unique_ptr<Predictor> make_predictor(const PredictRequest& request) {
  switch (request.model.config.task) {
    case TaskKind::kMaskedLm:
      return make_masked_predictor(request);
    case TaskKind::kCausalLm:
      throw UserError(
          "predict: a snapshot of task causal_lm continues texts; use trainer generate");
    case TaskKind::kImageClassification:
      require(request.input, "--input FILE, an image, a folder of them or an idx file", request);
      return make_image_predictor(request);
    case TaskKind::kTextClassification:
      return make_text_predictor(request);
  }
  return nullptr;
}

}  // namespace ddp::train
