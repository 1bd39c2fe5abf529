#include "trainer/task/predict/predictor.h"

#include <algorithm>

#include "trainer/runtime/error.h"
#include "trainer/task/model_bundle.h"

namespace ddp::train {

void answer_with(Prediction& prediction, const std::vector<std::string>& labels,
                 const torch::Tensor& probabilities) {
  const auto values = probabilities.accessor<double, 1>();
  for (std::size_t k = 0; k < labels.size(); ++k)
    prediction.answers.emplace_back(labels[k], values[static_cast<int64_t>(k)]);
  const auto best =
      std::max_element(prediction.answers.begin(), prediction.answers.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  prediction.label = best->first;
  prediction.probability = best->second;
}

std::unique_ptr<Predictor> make_predictor(const PredictRequest& request) {
  const TaskKind task = request.model.config.task;
  if (!request.text_pair.empty() && task != TaskKind::kTextClassification)
    throw UserError("--text_pair: is for a model of task text_classification; remove it");
  switch (task) {
    case TaskKind::kMaskedLm:
      return make_masked_predictor(request);
    case TaskKind::kTextClassification:
      return make_text_predictor(request);
    case TaskKind::kImageClassification:
      return make_image_predictor(request);
    case TaskKind::kCausalLm:
    case TaskKind::kPreference:
      break;
  }
  throw UserError("predict: a snapshot of task causal_lm continues texts; use trainer generate");
}

}  // namespace ddp::train
