// What is common to all tasks, and which there are.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>

#include "trainer/optim/trained_parameters.h"
#include "trainer/runtime/error.h"
#include "trainer/task/causal_lm.h"
#include "trainer/task/image_classification.h"
#include "trainer/task/masked_lm.h"
#include "trainer/task/preference.h"
#include "trainer/task/task.h"
#include "trainer/task/text_classification.h"

namespace ddp::train {
namespace {

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
  switch (config.task) {
    case TaskKind::kCausalLm:
      return std::make_unique<CausalLm>(config, metadata);
    case TaskKind::kPreference:
      return make_preference(config, metadata);
    case TaskKind::kMaskedLm:
      return std::make_unique<MaskedLm>(config, metadata);
    case TaskKind::kTextClassification:
      return std::make_unique<TextClassification>(config, metadata);
    case TaskKind::kImageClassification:
      break;
  }
  return std::make_unique<ImageClassification>(config, metadata);
}

}  // namespace ddp::train
