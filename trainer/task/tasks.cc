// The tasks that there are: one row of the table each.
#include <fmt/format.h>

#include <array>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "trainer/optim/trained_parameters.h"
#include "trainer/runtime/error.h"
#include "trainer/task/causal_lm.h"
#include "trainer/task/image_classification.h"
#include "trainer/task/masked_lm.h"
#include "trainer/task/model_bundle.h"
#include "trainer/task/predictor.h"
#include "trainer/task/preference.h"
#include "trainer/task/task.h"
#include "trainer/task/text_classification.h"

namespace ddp::train {
namespace {

using MakeTask = std::unique_ptr<Task> (*)(const Config&,
                                           const std::map<std::string, std::string>*);
using MakePredictor = std::unique_ptr<Predictor> (*)(const PredictRequest&);

struct TaskRow {
  TaskKind kind;
  MakeTask make;
  MakePredictor predictor;
};

std::unique_ptr<Predictor> continues_texts(const PredictRequest& /*request*/) {
  throw UserError("predict: a snapshot of task causal_lm continues texts; use trainer generate");
}

constexpr std::array<TaskRow, 5> kTasks = {{
    {TaskKind::kCausalLm, make_causal_lm, continues_texts},
    {TaskKind::kPreference, make_preference, continues_texts},
    {TaskKind::kMaskedLm, make_masked_lm, make_masked_predictor},
    {TaskKind::kTextClassification, make_text_classification, make_text_predictor},
    {TaskKind::kImageClassification, make_image_classification, make_image_predictor},
}};

const TaskRow& row_of(TaskKind kind) {
  for (const TaskRow& row : kTasks) {
    if (row.kind == kind) return row;
  }
  throw std::logic_error(fmt::format("task {} has no row in kTasks", task_name(kind)));
}

[[noreturn]] void refuse_division(bool pipeline) {
  throw UserError(fmt::format(
      "distributed_config.{} divides a causal language model; this task trains another one: use "
      "strategy=zero3, which divides any model",
      pipeline ? "pipeline" : "tensor"));
}

}  // namespace

void Task::divide(Mesh& mesh) { refuse_division(mesh.shape().pipeline > 1); }

void Task::check_division(const Config& config) const {
  const bool pipeline = config.distributed.pipeline > 1;
  if (pipeline || config.distributed.tensor > 1) refuse_division(pipeline);
}

std::vector<ParameterShape> Task::whole_shapes() const { return shapes_of(parameters()); }

std::unique_ptr<Task> make_task(const Config& config,
                                const std::map<std::string, std::string>* metadata) {
  return row_of(config.task).make(config, metadata);
}

std::unique_ptr<Predictor> make_predictor(const PredictRequest& request) {
  if (!request.text_pair.empty() && request.model.config.task != TaskKind::kTextClassification)
    throw UserError("--text_pair: is for a model of task text_classification; remove it");
  return row_of(request.model.config.task).predictor(request);
}

}  // namespace ddp::train
