#include "trainer/model/pretrained_config.h"

#include <fmt/format.h>

#include "tests/support/catch.h"

#include "tests/trainer/config/test_files.h"
#include "trainer/app/load_run.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using Catch::Contains;

constexpr const char* kGpt2 =
    R"({"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 64, "n_positions": 32,
        "vocab_size": 65)";

/// The configuration with `init_from` set to a folder with this config.json.
Config load(const test::TestFolder& folder, const std::string& json,
            std::vector<std::string> overrides = {}) {
  test::write_file("config.json", json);
  test::write_file("data.txt", "some text");
  test::write_file("c.yaml", "data_config:\n  path: data.txt\n  block_size: 16\n");
  overrides.push_back("gpt_config.init_from=" + folder.str());
  return load_config(ConfigSource::of_file("c.yaml"), overrides);
}

std::string error(const std::string& json, const std::vector<std::string>& overrides = {}) {
  const test::TestFolder folder;
  return test::error_of<UserError>([&] { load(folder, json, overrides); });
}

}  // namespace

TEST_CASE("sizes, activation and head follow the folder where they are not given") {
  const test::TestFolder folder;
  const Config config = load(folder, std::string(kGpt2) + "}");
  CHECK(config.gpt.n_layer == 2);
  CHECK(config.gpt.n_head == 4);
  CHECK(config.gpt.n_embd == 64);
  CHECK(config.gpt.activation == Activation::kGeluTanh);
  CHECK(config.gpt.tie_weights);
  const Config exact =
      load(folder, std::string(kGpt2) +
                       R"(, "activation_function": "gelu", "tie_word_embeddings": false})");
  CHECK(exact.gpt.activation == Activation::kGelu);
  CHECK_FALSE(exact.gpt.tie_weights);
}

TEST_CASE("each difference between the folder and the configuration is listed") {
  const std::string text = error(
      std::string(kGpt2) + R"(, "n_inner": 100, "layer_norm_epsilon": 1e-6})",
      {"gpt_config.n_layer=3", "gpt_config.n_head=4", "gpt_config.n_embd=128",
       "gpt_config.activation=gelu", "gpt_config.tie_weights=false", "data_config.block_size=64"});
  for (const char* part :
       {"n_layer is 2 there, 3 here", "n_embd is 64 there, 128 here", "n_inner is 100",
        "layer_norm_epsilon is 1e-06", "activation is gelu_tanh there, gelu here",
        "tie_weights is true there, false here", "it has 32 positions"}) {
    CHECK_THAT(text, Contains(part));
  }
  CHECK_THAT(text, !Contains("n_head"));
  CHECK(text.find('\n') == std::string::npos);
}

TEST_CASE("a folder that is no GPT-2 is refused in one line") {
  CHECK_THAT(error(R"({"model_type": "bert"})"), Contains("model_type is 'bert'"));
  CHECK_THAT(error("[1]"), Contains("not a JSON object"));
  CHECK_THAT(error("{\"n_layer\": " + std::string(200'000, '[') + std::string(200'000, ']') + "}"),
             Contains("nested too deeply"));
  CHECK_THAT(error(R"({"model_type": "gpt2", "n_layer": "two"})"), Contains("n_layer is \"two\""));
  CHECK_THAT(error(std::string(kGpt2) + R"(, "activation_function": "relu"})"),
             Contains("activation_function is relu"));
  const test::TestFolder folder;
  test::write_file("data.txt", "some text");
  test::write_file("c.yaml", "data_config:\n  path: data.txt\n");
  CHECK_THAT(test::error_of<UserError>([&] {
               load_config(ConfigSource::of_file("c.yaml"), {"gpt_config.init_from=none"});
             }),
             Contains("gpt_config.init_from") && Contains("No such file"));
}

TEST_CASE("a size above the range of its configuration key is refused in one line") {
  CHECK_THAT(error(R"({"model_type": "gpt2", "n_layer": 1000000000})"),
             Contains("n_layer is 1000000000, above 10000"));
  CHECK_THAT(error(R"({"model_type": "gpt2", "n_embd": 1000000000})"),
             Contains("n_embd is 1000000000, above 1000000"));
}

TEST_CASE("a BERT for regression or several labels at once is refused by its problem_type") {
  const test::TestFolder folder;
  for (const char* type : {"regression", "multi_label_classification"}) {
    test::write_file("config.json",
                     fmt::format(R"({{"model_type": "bert", "problem_type": "{}"}})", type));
    CHECK(read_pretrained_bert(folder.str()).unsupported ==
          std::vector<std::string>{
              fmt::format("problem_type is {}, not single_label_classification", type)});
  }
  test::write_file("config.json", R"({"model_type": "bert", "problem_type": null})");
  CHECK(read_pretrained_bert(folder.str()).unsupported.empty());
}

}  // namespace ddp::train
