// What tells the networks of BERT's families apart: names, as in transformers, and a few switches.
// Does not use LibTorch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/model_config.h"

namespace ddp::train {

/// Paths of modules are below the model, those of a layer below the layer.
struct BertTraits {
  const char* base;  ///< The encoder: "bert"; its embeddings are called alike in all families.
  const char* layers;
  const char* query;
  const char* key;
  const char* value;
  const char* attention_output;
  const char* attention_norm;
  const char* inner;
  const char* output;
  const char* output_norm;

  const char* transform;       ///< The masked-LM head's layer before the output.
  const char* transform_norm;  ///< And its norm.
  const char* decoder_bias;    ///< A parameter.

  const char* pooler;  ///< The classifier's first layer, and its last.
  const char* classifier;
  bool relu_pooler;             ///< tanh otherwise.
  bool drops_before_pooler;     ///< Dropout on its input as well.
  bool drops_attention_output;  ///< Dropout after attention's output layer.

  const char* described;    ///< "BERT"
  const char* model_class;  ///< "Bert", of BertForMaskedLM.
  int64_t type_vocab_size;
  int64_t position_offset;
  int64_t separators;  ///< Between two texts, of the token that ends a text.
};

const BertTraits& traits_of(BertFamily family);

/// Whether `parameter` is of a text classifier's own layers, which a pretrained encoder may lack,
/// and which are trained and saved next to adapters: "classifier.weight", "bert.pooler.dense.bias".
bool is_of_classifier(std::string_view parameter);
/// Their modules as peft's modules_to_save has them: {"pooler", "classifier"}.
std::vector<std::string> classifier_modules(BertFamily family);

}  // namespace ddp::train
