// What the arithmetic of an estimate says of BERTs, beside the modules themselves.
#include "tests/support/catch.h"
#include "trainer/model/bert_classifier.h"
#include "trainer/model/bert_cost.h"

namespace ddp::train {
namespace {

BertConfig some_bert() {
  BertConfig bert;
  bert.n_layer = 3;
  bert.n_head = 2;
  bert.n_embd = 16;
  bert.intermediate = 40;
  return bert;
}

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

}  // namespace

TEST_CASE("the arithmetic of an estimate counts the parameters that a BERT has") {
  const BertConfig bert = some_bert();
  const BertForMaskedLm masked(bert, 50, 12, 1);
  CHECK(total_of(bert_parameter_parts(bert, {50, 12})) == parameter_count(*masked));
  const BertForSequenceClassification classifier(bert, 50, 12, 4, 1);
  CHECK(total_of(bert_parameter_parts(bert, {50, 12, 4})) == parameter_count(*classifier));
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
  sizes.longest_row = 6;
  CHECK(item(bert_memory_items(bert_training(0.1), sizes, {}), "activations") <
        item(all, "activations") / 2);
}

}  // namespace ddp::train
