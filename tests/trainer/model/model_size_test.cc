// The arithmetic of an estimate for BERTs and networks for images.
#include <cmath>

#include "tests/support/catch.h"
#include "trainer/model/bert/bert_classifier.h"
#include "trainer/model/bert_family.h"
#include "trainer/model/cost/bert_cost.h"
#include "trainer/model/cost/image_cost.h"
#include "trainer/model/cost/tensor_cost.h"
#include "trainer/model/gpt/gpt.h"
#include "trainer/model/gpt/gpt_architecture.h"
#include "trainer/model/image_network.h"

namespace ddp::train {
namespace {

BertConfig some_bert(BertFamily family = BertFamily::kBert) {
  BertConfig bert;
  bert.family = family;
  bert.type_vocab_size = traits_of(family).type_vocab_size;
  bert.position_offset = traits_of(family).position_offset;
  bert.n_layer = 3;
  bert.n_head = 2;
  bert.n_embd = 16;
  bert.intermediate = 40;
  return bert;
}

constexpr BertFamily kBertFamilies[] = {BertFamily::kBert, BertFamily::kRoberta,
                                        BertFamily::kDistilbert};

Config bert_training(double dropout) {
  Config config;
  config.bert = some_bert();
  config.bert.hidden_pdrop = config.bert.attn_pdrop = dropout;
  config.trainer.batch_size = 8;
  return config;
}

int64_t item(const std::vector<MemoryItem>& items, const std::string& name) {
  for (const MemoryItem& each : items)
    if (each.name == name) return each.bytes;
  return 0;
}

Config image_training(BatchNormKind norm) {
  Config config;
  config.image.network = ImageNetworkKind::kConv;
  config.image.n_layer = 2;
  config.image.conv_channels = 4;
  config.image.width = 8;
  config.image.batch_norm = norm;
  config.trainer.batch_size = 16;
  return config;
}

template <class ModelParameters>
void check_same(const std::vector<ParameterShape>& shapes, const ModelParameters& parameters) {
  REQUIRE(shapes.size() == parameters.size());
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    INFO(shapes[i].name);
    CHECK(shapes[i].name == parameters[i].name);
    CHECK(shapes[i].sizes == parameters[i].tensor.sizes().vec());
    CHECK(shapes[i].role == parameters[i].role);
  }
}

}  // namespace

TEST_CASE("names, sizes and roles of parameters are computed without a model") {
  for (const bool tied : {false, true}) {
    GptConfig gpt;
    gpt.n_layer = 2;
    gpt.n_head = 2;
    gpt.n_embd = 8;
    gpt.tie_weights = tied;
    check_same(shapes_of(gpt_layout(gpt, 65, 16)), GPT(gpt, 65, 16, 1)->model_parameters());
  }
  for (const BertFamily family : kBertFamilies) {
    const BertConfig bert = some_bert(family);
    check_same(bert_parameter_shapes(bert, {50, 12}),
               BertForMaskedLm(bert, 50, 12, 1)->model_parameters());
    check_same(bert_parameter_shapes(bert, {50, 12, 4}),
               BertForSequenceClassification(bert, 50, 12, 4, 1)->model_parameters());
  }
  for (const auto norm : {BatchNormKind::kOff, BatchNormKind::kLocal}) {
    for (const auto kind : {ImageNetworkKind::kConv, ImageNetworkKind::kDense}) {
      ImageConfig image = image_training(norm).image;
      image.network = kind;
      const ImageSizes sizes{2, 9, 7, 6};
      check_same(image_parameter_shapes(image, sizes),
                 ImageNetwork(image, sizes, 1)->network_parameters());
    }
  }
}

TEST_CASE("memory of convolutions is that of the stage whose backward pass takes most") {
  const ImageSizes sizes{1, 8, 8, 10};
  // The first stage's: its outputs, a quarter of them and their indices after the pooling; then the
  // gradients after and before ReLU, when all that the second stage kept is freed.
  const int64_t outputs = int64_t{16} * 4 * 8 * 8;
  const auto plain = image_memory_items(image_training(BatchNormKind::kOff), sizes, {});
  CHECK(item(plain, "activations") == outputs * 4 + outputs / 4 * (4 + 8) + 2 * outputs * 4);
  // And the input of batch normalization, the gradients around it.
  const auto normalized = image_memory_items(image_training(BatchNormKind::kLocal), sizes, {});
  CHECK(item(normalized, "activations") == item(plain, "activations") + 2 * outputs * 4);
}

TEST_CASE("the arithmetic of an estimate counts the parameters that a BERT has") {
  for (const BertFamily family : kBertFamilies) {
    const BertConfig bert = some_bert(family);
    const BertForMaskedLm masked(bert, 50, 12, 1);
    CHECK(total_of(bert_parameter_parts(bert, {50, 12})) == parameter_count(*masked));
    const BertForSequenceClassification classifier(bert, 50, 12, 4, 1);
    CHECK(total_of(bert_parameter_parts(bert, {50, 12, 4})) == parameter_count(*classifier));
  }
}

TEST_CASE("operations of a row are six for each weight and token, and those of attention") {
  const BertConfig bert = some_bert();
  BertSizes sizes{50, 12, 4};
  sizes.mean_row = 10;
  const double layers = 3 * (4 * 16 * 16 + 2 * 16 * 40);
  const double attention = 12.0 * 3 * 16 * 10 * 10;
  CHECK(bert_flops(bert, sizes) == 6 * layers * 10 + attention + 6 * (16 * 16 + 4 * 16));
  sizes.classes = 0;
  sizes.hidden_share = 0.2;
  CHECK(bert_flops(bert, sizes) == 6 * layers * 10 + attention + 6 * 2 * (16 * 16 + 50 * 16));
}

TEST_CASE(
    "memory follows the longest row, the batch and dropout, and logits follow the hidden tokens") {
  BertSizes sizes{50, 12};
  sizes.hidden_share = 0.25;
  sizes.longest_row = 12;
  const auto all = bert_memory_items(bert_training(0.1), sizes, {});
  CHECK(item(all, "logits") == int64_t{8} * 12 / 4 * 50 * 12);
  CHECK(item(all, "optimizer") == 2 * item(all, "weights"));
  CHECK(item(bert_memory_items(bert_training(0.0), sizes, {}), "activations") <
        item(all, "activations"));
  // The heap of a CPU has holes, the allocator of a GPU is exact enough.
  const auto on_cpu = item(bert_memory_items(bert_training(0.0), sizes, {}), "activations");
  ComputePlace gpu;
  gpu.cuda = true;
  const auto on_gpu = item(bert_memory_items(bert_training(0.0), sizes, gpu), "activations");
  CHECK(std::abs(static_cast<double>(on_cpu) - 1.22 * static_cast<double>(on_gpu)) <= 1.0);
  sizes.longest_row = 6;
  CHECK(item(bert_memory_items(bert_training(0.1), sizes, {}), "activations") <
        item(all, "activations") / 2);
}

}  // namespace ddp::train
