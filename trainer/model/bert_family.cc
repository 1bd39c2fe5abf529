#include "trainer/model/bert_family.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace ddp::train {
namespace {

constexpr BertTraits kBertTraits = {.base = "bert",
                                    .layers = "encoder.layer",
                                    .query = "attention.self.query",
                                    .key = "attention.self.key",
                                    .value = "attention.self.value",
                                    .attention_output = "attention.output.dense",
                                    .attention_norm = "attention.output.LayerNorm",
                                    .inner = "intermediate.dense",
                                    .output = "output.dense",
                                    .output_norm = "output.LayerNorm",
                                    .transform = "cls.predictions.transform.dense",
                                    .transform_norm = "cls.predictions.transform.LayerNorm",
                                    .decoder_bias = "cls.predictions.bias",
                                    .pooler = "bert.pooler.dense",
                                    .classifier = "classifier",
                                    .relu_pooler = false,
                                    .drops_before_pooler = false,
                                    .drops_attention_output = true,
                                    .described = "BERT",
                                    .model_class = "Bert",
                                    .type_vocab_size = 2,
                                    .position_offset = 0,
                                    .separators = 1};

/// Its encoder has BERT's names.
constexpr BertTraits roberta_traits() {
  BertTraits traits = kBertTraits;
  traits.base = "roberta";
  traits.transform = "lm_head.dense";
  traits.transform_norm = "lm_head.layer_norm";
  traits.decoder_bias = "lm_head.bias";
  traits.pooler = "classifier.dense";
  traits.classifier = "classifier.out_proj";
  traits.drops_before_pooler = true;
  traits.described = "RoBERTa";
  traits.model_class = "Roberta";
  traits.type_vocab_size = 1;
  traits.position_offset = 2;
  traits.separators = 2;
  return traits;
}

constexpr BertTraits kDistilbertTraits = {.base = "distilbert",
                                          .layers = "transformer.layer",
                                          .query = "attention.q_lin",
                                          .key = "attention.k_lin",
                                          .value = "attention.v_lin",
                                          .attention_output = "attention.out_lin",
                                          .attention_norm = "sa_layer_norm",
                                          .inner = "ffn.lin1",
                                          .output = "ffn.lin2",
                                          .output_norm = "output_layer_norm",
                                          .transform = "vocab_transform",
                                          .transform_norm = "vocab_layer_norm",
                                          .decoder_bias = "vocab_projector.bias",
                                          .pooler = "pre_classifier",
                                          .classifier = "classifier",
                                          .relu_pooler = true,
                                          .drops_before_pooler = false,
                                          .drops_attention_output = false,
                                          .described = "DistilBERT",
                                          .model_class = "DistilBert",
                                          .type_vocab_size = 0,
                                          .position_offset = 0,
                                          .separators = 1};

/// In the order of BertFamily.
constexpr BertTraits kFamilies[] = {kBertTraits, roberta_traits(), kDistilbertTraits};

/// "pooler" of "bert.pooler.dense": the module that peft wraps.
std::string saved_module(const BertTraits& traits, std::string_view path) {
  const std::string base = std::string(traits.base) + ".";
  if (path.starts_with(base)) path.remove_prefix(base.size());
  return std::string(path.substr(0, path.find('.')));
}

}  // namespace

const BertTraits& traits_of(BertFamily family) {
  return kFamilies[static_cast<std::size_t>(family)];
}

bool is_of_classifier(std::string_view parameter) {
  return std::any_of(std::begin(kFamilies), std::end(kFamilies), [&](const BertTraits& traits) {
    return parameter.starts_with(std::string(traits.pooler) + ".") ||
           parameter.starts_with(std::string(traits.classifier) + ".");
  });
}

std::vector<std::string> classifier_modules(BertFamily family) {
  const BertTraits& traits = traits_of(family);
  std::vector<std::string> modules = {saved_module(traits, traits.pooler)};
  const std::string last = saved_module(traits, traits.classifier);
  if (last != modules.front()) modules.push_back(last);
  return modules;
}

}  // namespace ddp::train
