// Adapters: which layers get one, their initial values, and what is counted of them.
#include "tests/support/catch.h"

#include "tests/trainer/llama_kinds.h"
#include "tests/trainer/test_model.h"
#include "trainer/model/bert/bert_classifier.h"
#include "trainer/model/bert_family.h"
#include "trainer/model/blocks/adaptable_linear.h"
#include "trainer/model/cost/bert_cost.h"
#include "trainer/model/cost/tensor_cost.h"
#include "trainer/model/llama/llama.h"
#include "trainer/model/lora.h"
#include "trainer/task/adapted_model.h"

namespace ddp::train {
namespace {

Config adapted(const std::vector<std::string>& targets) {
  Config config;
  config.gpt = test::tiny_config();
  config.data.block_size = 16;
  config.lora = {.rank = 3, .alpha = 6.0, .dropout = 0.0, .targets = targets};
  return config;
}

std::vector<std::string> layers_of(const Config& config) {
  return adapted_layers(
      config.lora.targets,
      target_layers(config, shapes_of(causal_architecture(config).layout(config, 10))));
}

}  // namespace

TEST_CASE("a target is the end of a name, the whole name or a shell pattern of either") {
  using Layers = std::vector<std::string>;
  CHECK(layers_of(adapted({"c_attn"})) ==
        Layers{"transformer.h.0.attn.c_attn", "transformer.h.1.attn.c_attn"});
  CHECK(layers_of(adapted({"mlp.c_proj"})) ==
        Layers{"transformer.h.0.mlp.c_proj", "transformer.h.1.mlp.c_proj"});
  CHECK(layers_of(adapted({"transformer.h.1.attn.c_proj", "h.0.mlp.c_f?"})) ==
        Layers{"transformer.h.0.mlp.c_fc", "transformer.h.1.attn.c_proj"});
  CHECK(layers_of(adapted({"*"})).size() == 8);
  CHECK(layers_of(adapted({"attn"})).empty());
  CHECK(layers_of(adapted({"proj"})).empty());
}

TEST_CASE("the token embedding and the output layer get adapters by their names alone") {
  using Layers = std::vector<std::string>;
  CHECK(layers_of(adapted({"lm_head", "wte"})) == Layers{"transformer.wte", "lm_head"});
  CHECK(layers_of(adapted({"transformer.wte"})) == Layers{"transformer.wte"});
  CHECK(layers_of(adapted({"lm_*", "transformer.w?e", "wpe"})).empty());
  Config llama = test::whole_config(test::config_of(test::llama_kinds()[1].shape), 16);
  llama.lora.targets = {"embed_tokens", "lm_head"};
  CHECK(layers_of(llama) == Layers{"model.embed_tokens", "lm_head"});
}

TEST_CASE(
    "adapters start as peft's: uniform within 1 / sqrt(in), and zeros, and only they are trained") {
  Config config = adapted({"*", "wte", "lm_head"});
  const auto model = make_causal_model(config, 50, 1);
  model->eval();
  const auto inputs = test::random_tokens(2, 16, 50, 4);
  const torch::NoGradGuard no_grad;
  const auto before = model->forward(inputs);
  add_adapters(*model, config.lora, 7);
  // Layers without adapters take the fused kernels, whose sums differ in their last bits.
  CHECK(torch::allclose(model->forward(inputs), before, 0, 1e-6));
  for (const auto& p : model->model_parameters())
    CHECK(p.tensor.requires_grad() == is_of_adapter(p.name));
  for (const auto& p : trainable_parameters(model->model_parameters())) {
    INFO(p.name);
    if (p.name.ends_with("lora_embedding_B")) {
      CHECK(std::abs(p.tensor.std().item<double>() - 1.0) < 0.25);
      continue;
    }
    if (p.name.ends_with("lora_B.weight") || p.name.ends_with("lora_embedding_A")) {
      CHECK(torch::equal(p.tensor, torch::zeros_like(p.tensor)));
      continue;
    }
    const double bound = 1.0 / std::sqrt(static_cast<double>(p.tensor.size(1)));
    CHECK(p.tensor.abs().max().item<double>() <= bound);
    CHECK(p.tensor.abs().max().item<double>() > 0.8 * bound);
  }
}

TEST_CASE("adapters depend on their seed alone, and have the shapes that an estimate counts") {
  using Targets = std::vector<std::string>;
  const Targets all = {"*", "wte", "embed_tokens", "lm_head"};
  const auto llama = test::whole_config(test::config_of(test::llama_kinds()[1].shape), 16);
  const auto phi3 = test::whole_config(test::config_of(test::llama_kind("phi3")), 16);
  const std::vector<std::pair<Config, Targets>> models = {
      {adapted({"*"}), all}, {llama, all}, {phi3, {"*"}}, {phi3, {"q_proj", "gate_up_proj"}}};
  for (const auto& [whole, targets] : models) {
    Config config = whole;
    config.lora = {.rank = 3, .targets = targets};
    const auto first = make_causal_model(config, 50, 1), second = make_causal_model(config, 50, 2);
    add_adapters(*first, config.lora, 7);
    add_adapters(*second, config.lora, 7);
    const auto of_first = trainable_parameters(first->model_parameters()),
               of_second = trainable_parameters(second->model_parameters());
    const auto shapes = adapter_shapes(config, causal_architecture(config).layout(config, 50));
    REQUIRE(of_first.size() == shapes.size());
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      CHECK(of_first[i].name == shapes[i].name);
      CHECK(of_first[i].tensor.sizes() == shapes[i].sizes);
      CHECK(of_first[i].role == shapes[i].role);
      CHECK(torch::equal(of_first[i].tensor, of_second[i].tensor));
    }
  }
}

TEST_CASE("of a text classifier the adapters and its own layers are trained, the rest is not") {
  for (const BertFamily family :
       {BertFamily::kBert, BertFamily::kRoberta, BertFamily::kDistilbert}) {
    BertConfig bert;
    bert.family = family;
    bert.n_layer = bert.n_head = 2;
    bert.n_embd = bert.intermediate = 16;
    bert.type_vocab_size = traits_of(family).type_vocab_size;
    Config config;
    config.lora = {.rank = 3, .targets = {"*", "word_embeddings"}};
    BertForSequenceClassification model(bert, 50, 12, 4, 1);
    add_adapters(*model, config.lora, 7);
    const auto trained = trainable_parameters(model->model_parameters());
    const auto shapes = adapter_shapes(config, bert_parameter_shapes(bert, {50, 12, 4}));
    REQUIRE(trained.size() == shapes.size());
    REQUIRE(trained.size() == 2 + 2 * 2 * 6 + 4);  // six layers of two; two with their biases
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      CHECK(trained[i].name == shapes[i].name);
      CHECK(trained[i].tensor.sizes() == shapes[i].sizes);
    }
    for (const auto& p : model->model_parameters())
      CHECK(p.tensor.requires_grad() == is_trained_with_adapters(p.name));
  }
}

TEST_CASE("an estimate counts what dropout on the adapters' inputs keeps") {
  Config config = adapted({"c_attn", "mlp.c_proj"});
  config.trainer.batch_size = 4;
  const auto activations = [&config] {
    for (const MemoryItem& item : causal_architecture(config).memory_items(config, 50, {}))
      if (item.name == "activations") return item.bytes;
    return int64_t{0};
  };
  const int64_t without = activations();
  config.lora.dropout = 0.1;
  CHECK(activations() - without == 4 * 16 * 2 * (32 + 4 * 32) * (4 + 4));
}

TEST_CASE(
    "an adapter adds alpha / rank B A x, or alpha / sqrt(rank), and dropout only while training") {
  for (const auto& [stabilized, scale] : {std::pair{false, 6.0 / 4.0}, std::pair{true, 3.0}}) {
    AdaptableLinear linear(5, 4);
    const torch::NoGradGuard no_grad;
    linear->weight.normal_();
    linear->bias.normal_();
    const auto x = torch::randn({3, 5});
    const auto plain = linear(x);
    linear->add_adapter({.rank = 4,
                         .alpha = 6.0,
                         .use_rslora = stabilized,
                         .dropout = 0.5,
                         .targets = {},
                         .init_from = ""},
                        at::detail::getDefaultCPUGenerator());
    const auto named = linear->named_parameters();
    named["lora_B.weight"].normal_();
    const auto added =
        torch::mm(torch::mm(x, named["lora_A.weight"].t()), named["lora_B.weight"].t());
    linear->eval();
    CHECK(torch::allclose(linear(x), plain + added * scale, 1e-5, 1e-6));
    CHECK(torch::allclose(
        linear->merged_weight(),
        linear->weight + scale * torch::mm(named["lora_B.weight"], named["lora_A.weight"])));
    linear->train();
    CHECK_FALSE(torch::allclose(linear(x), plain + added * scale, 1e-5, 1e-6));
  }
}

}  // namespace ddp::train
