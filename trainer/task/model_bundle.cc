#include "trainer/task/model_bundle.h"

#include <utility>

#include "trainer/model/bert/bert.h"
#include "trainer/model/bert/bert_classifier.h"
#include "trainer/model/causal_model.h"
#include "trainer/task/adapted_model.h"
#include "trainer/task/bert_task.h"
#include "trainer/task/causal_lm.h"
#include "trainer/task/class_labels.h"
#include "trainer/task/image_classification.h"

namespace ddp::train {
namespace {

/// Takes the model, with its adapters, and the names of its parameters.
template <class Model>
void take(ModelBundle& bundle, std::shared_ptr<Model> model) {
  if (bundle.config.lora.enabled()) {
    add_adapters_to_base(*model, bundle.config, std::nullopt, stored_base_digest(&bundle.metadata));
  }
  for (const Parameter& p : trainable_parameters(model->model_parameters()))
    bundle.weights.push_back({p.name, p.tensor});
  bundle.model = std::move(model);
}

void make_causal(ModelBundle& bundle) {
  bundle.tokenizer = tokenizer_of(bundle.metadata);
  if (bundle.config.adapted()) check_base(bundle.config, bundle.tokenizer->size());
  auto model = make_causal_model(bundle.config, bundle.tokenizer->size(), std::nullopt);
  if (bundle.config.prompt_tuning.enabled())
    add_prompt_to_base(*model, bundle.config, *bundle.tokenizer, std::nullopt,
                       stored_base_digest(&bundle.metadata));
  take(bundle, std::move(model));
}

void make_bert(ModelBundle& bundle) {
  bundle.tokenizer = tokenizer_of_bert(bundle.metadata);
  const int64_t vocab_size = bundle.tokenizer->size();
  if (bundle.config.adapted()) check_base(bundle.config, vocab_size);
  const int64_t block_size = bundle.config.data.block_size;
  if (bundle.config.task == TaskKind::kMaskedLm)
    return take(bundle, BertForMaskedLm(bundle.config.bert, vocab_size, block_size, 0).ptr());
  bundle.labels = labels_of(bundle.metadata);
  const auto classes = static_cast<int64_t>(bundle.labels.size());
  auto model = BertForSequenceClassification(bundle.config.bert, vocab_size,
                                             bundle.config.positions(), classes, 0)
                   .ptr();
  if (bundle.config.prompt_tuning.enabled())
    add_prompt_to_base(*model, bundle.config, *bundle.tokenizer, std::nullopt,
                       stored_base_digest(&bundle.metadata));
  take(bundle, std::move(model));
}

void make_images(ModelBundle& bundle) {
  const auto facts = ImageModelFacts::of(bundle.metadata);
  const ImageNetwork network = make_image_network(bundle.config, facts, 0);
  bundle.labels = facts.labels;
  for (const Parameter& p : parameters_of(network)) bundle.weights.push_back({p.name, p.tensor});
  bundle.buffers = buffers_of(network);
  bundle.model = network.ptr();
}

}  // namespace

ModelBundle ModelBundle::untrained(Config config, std::map<std::string, std::string> metadata) {
  ModelBundle bundle;
  bundle.config = std::move(config);
  bundle.metadata = std::move(metadata);
  switch (bundle.config.task) {
    case TaskKind::kCausalLm:
    case TaskKind::kPreference:
      make_causal(bundle);
      break;
    case TaskKind::kMaskedLm:
    case TaskKind::kTextClassification:
      make_bert(bundle);
      break;
    case TaskKind::kImageClassification:
      make_images(bundle);
      break;
  }
  return bundle;
}

}  // namespace ddp::train
