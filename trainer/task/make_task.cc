#include "trainer/task/causal_lm.h"
#include "trainer/task/image_classification.h"
#include "trainer/task/masked_lm.h"
#include "trainer/task/task.h"
#include "trainer/task/text_classification.h"

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
      return make_text_classification(config, metadata);
  }
  return nullptr;
}

}  // namespace ddp::train
