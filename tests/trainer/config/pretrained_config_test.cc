#include "trainer/model/pretrained_config.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

#include "tests/trainer/config/test_files.h"
#include "trainer/app/load_run.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/model/llama/llama_config.h"
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

constexpr const char* kBert = R"({"model_type": "bert", "num_hidden_layers": 2, "hidden_size": 64,
    "num_attention_heads": 4, "intermediate_size": 256)";

/// With init_from=base, a folder with this config.json.
Config following(const std::string& json, std::vector<std::string> overrides = {},
                 const std::string& yaml = "data_config:\n  path: data.txt\n  block_size: 16\n") {
  const test::TestFolder folder;
  std::filesystem::create_directory("base");
  if (!json.empty()) test::write_file("base/config.json", json);
  test::write_file("data.txt", "some text");
  test::write_file("c.yaml", yaml);
  overrides.insert(overrides.begin(), "init_from=base");
  Config config = load_config(ConfigSource::of_file("c.yaml"), overrides);
  CHECK(config.init_from.empty());
  return config;
}

std::string not_followed(const std::string& json, const std::vector<std::string>& overrides = {}) {
  return test::error_of<UserError>([&] { following(json, overrides); });
}

}  // namespace

TEST_CASE("init_from chooses task, model and its sizes by the folder's config.json") {
  const Config gpt = following(std::string(kGpt2) + "}");
  CHECK(gpt.task == TaskKind::kCausalLm);
  CHECK(gpt.model == "gpt");
  CHECK(gpt.gpt.n_embd == 64);
  CHECK(gpt.gpt.init_from.ends_with("/base"));
  for (const std::string type : {"llama", "qwen2", "qwen3"}) {
    INFO(type);
    const Config llama = following(R"({"model_type": ")" + type + R"(", "num_hidden_layers": 3,
        "num_attention_heads": 4, "hidden_size": 64, "intermediate_size": 96})");
    CHECK(llama.model == "llama");
    CHECK(llama_of(llama).n_layer == 3);
    CHECK(llama_of(llama).init_from.ends_with("/base"));
    CHECK(llama.data.tokenizer.empty());
  }
  const Config bert = following(std::string(kBert) + "}");
  CHECK(bert.task == TaskKind::kMaskedLm);
  CHECK(bert.bert.n_layer == 2);
  CHECK(bert.bert.init_from.ends_with("/base"));
  const std::string classifier =
      std::string(kBert) + R"(, "architectures": ["BertForSequenceClassification"]})";
  CHECK(following(classifier).task == TaskKind::kTextClassification);
  CHECK(following(classifier, {"task=masked_lm"}).task == TaskKind::kMaskedLm);
  CHECK(following(std::string(kBert) + "}", {"task=text_classification"}).task ==
        TaskKind::kTextClassification);
}

TEST_CASE("the recipe for fine-tuning takes the folder of any model") {
  const std::string recipe = test::read_file(DDP_SOURCE_DIR "/configs/finetune.yaml");
  const std::vector<std::string> text = {"data_config.path=data.txt", "data_config.block_size=16"};
  CHECK(following(std::string(kGpt2) + "}", text, recipe).model == "gpt");
  CHECK(following(R"({"model_type": "qwen2"})", text, recipe).model == "llama");
  CHECK(following(std::string(kBert) + "}", text, recipe).task == TaskKind::kMaskedLm);
}

TEST_CASE("an init_from that cannot be followed is refused in one line") {
  CHECK_THAT(not_followed(""), Contains("init_from=base: ") &&
                                   Contains("base/config.json: No such file or directory") &&
                                   Contains("give a snapshot of trainer, or a folder that"));
  CHECK_THAT(not_followed(R"({"model_type": "opt"})"),
             Contains("model_type is 'opt'; this trainer reads bert, roberta, distilbert, gpt2, "
                      "llama, qwen2, qwen3"));
  const std::string gpt = std::string(kGpt2) + "}";
  CHECK_THAT(not_followed(gpt, {"gpt_config.init_from=other"}),
             Contains("init_from=base: base conflicts with gpt_config.init_from=other; keep one"));
  CHECK(following(gpt, {"gpt_config.init_from=./base"}).model == "gpt");
  CHECK_THAT(not_followed(gpt, {"llama_config.init_from=base"}),
             Contains("llama_config.init_from=base: does not apply to model=gpt"));
  CHECK_THAT(not_followed(gpt, {"model=llama"}),
             Contains("base is model=gpt, and model=llama; remove model"));
  CHECK_THAT(not_followed(gpt, {"task=masked_lm"}),
             Contains("base is model=gpt, and task=masked_lm; remove task"));
  CHECK_THAT(not_followed(gpt, {"task=image_classification"}),
             Contains("init_from=base: does not apply to task=image_classification"));
  CHECK_THAT(not_followed(std::string(kBert) + "}", {"task=causal_lm"}),
             Contains("base is a BERT, and task=causal_lm; remove task"));
}

TEST_CASE(
    "an init_from that is a run's folder means its newest snapshot, or the best that it kept") {
  const test::TestFolder folder;
  std::filesystem::create_directory("base");
  const auto config = [](const std::vector<std::string>& overrides) {
    return load_config(ConfigSource::of_file("c.yaml"), overrides);
  };
  const auto write_snapshot = [&](const std::string& name, const std::string& keep_best) {
    const Config there =
        config({"gpt_config.n_layer=1", "gpt_config.n_head=2", "gpt_config.n_embd=8",
                "trainer_config.load_best_model_at_end=" + keep_best});
    const nlohmann::json header = {
        {"__metadata__", {{"config", config_to_json(there)}, {"run_id", "1"}}}};
    const std::string text = header.dump();
    std::string file(8, '\0');
    const uint64_t length = text.size();
    std::memcpy(file.data(), &length, sizeof length);
    test::write_file("base/" + name, file + text);
  };
  test::write_file("data.txt", "some text");
  test::write_file("c.yaml", "data_config:\n  path: data.txt\n  block_size: 4\n");
  test::write_file("base/s.pt.manifest.json",
                   R"({"run": "1", "best": "s.pt.step-2", "snapshots": []})");
  for (const char* key : {"init_from=base", "gpt_config.init_from=base"}) {
    for (const char* name : {"s.pt", "s.pt.step-2"}) write_snapshot(name, "false");
    CHECK_THAT(config({key}).gpt.init_from, Catch::EndsWith("/base/s.pt"));
    for (const char* name : {"s.pt", "s.pt.step-2"}) write_snapshot(name, "true");
    const Config best = config({key});
    CHECK_THAT(best.gpt.init_from, Catch::EndsWith("/base/s.pt.step-2"));
    CHECK(best.gpt.n_embd == 8);
  }
  test::write_file("base/other.pt.manifest.json", "{}");
  CHECK_THAT(test::error_of<UserError>([&] { config({"gpt_config.init_from=base"}); }),
             Contains("gpt_config.init_from=base: ") &&
                 Contains("base: holds the snapshots of 2 runs; name one file"));
}

TEST_CASE("virtual tokens need positions, a model and no adapters next to them") {
  const std::string gpt = std::string(kGpt2) + "}";
  CHECK(following(gpt, {"prompt_tuning.tokens=16"}).positions() == 32);
  CHECK_THAT(not_followed(gpt, {"prompt_tuning.tokens=17"}),
             Contains("it has 32 positions, data_config.block_size=16 after "
                      "prompt_tuning.tokens=17 asks for 33: set data_config.block_size=15"));
  CHECK_THAT(not_followed(gpt, {"prompt_tuning.tokens=-1"}), Contains("prompt_tuning.tokens"));
  CHECK_THAT(not_followed(gpt, {"prompt_tuning.text=Answer"}),
             Contains("has no effect without prompt_tuning.tokens"));
  CHECK_THAT(not_followed(gpt, {"prompt_tuning.tokens=4", "lora.rank=4"}),
             Contains("prompt_tuning.tokens=4: conflicts with lora.rank; keep one"));
  CHECK_THAT(not_followed(gpt, {"prompt_tuning.tokens=4", "task=preference"}),
             Contains("prompt_tuning.tokens=4: virtual tokens do not learn from pairs "
                      "(task=preference); use lora.rank"));
  CHECK_THAT(not_followed(gpt, {"prompt_tuning.token=4"}), Contains("prompt_tuning.tokens"));
  CHECK_THAT(not_followed(gpt, {"prompt_tuning.init_from=base"}),
             Contains("base/adapter_config.json: no such file"));
  CHECK_THAT(not_followed(gpt, {"init_from=null", "prompt_tuning.tokens=4"}),
             Contains("virtual tokens need a pretrained model; set gpt_config.init_from"));
  CHECK_THAT(not_followed(gpt, {"prompt_tuning.tokens=4", "distributed_config.pipeline=2"}),
             Contains("virtual tokens (prompt_tuning.tokens) are trained on whole models"));
}

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

TEST_CASE("dropout follows the folder where it is not given, of each family by its keys") {
  const std::string gpt2 =
      std::string(kGpt2) + R"(, "embd_pdrop": 0.2, "resid_pdrop": 0.0, "attn_pdrop": 0.3})";
  const Config gpt = following(gpt2, {"gpt_config.embd_pdrop=null", "gpt_config.attn_pdrop=0.4"});
  CHECK(gpt.gpt.embd_pdrop == 0.2);
  CHECK(gpt.gpt.resid_pdrop == 0.0);
  CHECK(gpt.gpt.attn_pdrop == 0.4);
  CHECK(following(std::string(kGpt2) + "}").gpt.embd_pdrop == 0.1);
  const Config bert = following(
      std::string(kBert) + R"(, "hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3})");
  CHECK(bert.bert.hidden_pdrop == 0.2);
  CHECK(bert.bert.attn_pdrop == 0.3);
  const Config distilbert = following(
      R"({"model_type": "distilbert", "n_layers": 1, "dropout": 0.2, "attention_dropout": 0.3})",
      {"bert_config.attn_pdrop=0"});
  CHECK(distilbert.bert.hidden_pdrop == 0.2);
  CHECK(distilbert.bert.attn_pdrop == 0.0);
}

TEST_CASE("an output layer that differs from the table of tokens is not tied, as in transformers") {
  const test::TestFolder folder;
  const auto with_head = [&](const std::string& head, std::vector<std::string> overrides = {}) {
    const auto at = [](int begin) {
      return nlohmann::json{
          {"dtype", "F32"}, {"shape", {1, 1}}, {"data_offsets", {begin, begin + 4}}};
    };
    const std::string text =
        nlohmann::json{{"lm_head.weight", at(0)}, {"wte.weight", at(4)}}.dump();
    const uint64_t length = text.size();
    std::string file(sizeof length, '\0');
    std::memcpy(file.data(), &length, sizeof length);
    test::write_file("model.safetensors", file + text + head + "same");
    return load(folder, std::string(kGpt2) + "}", std::move(overrides)).gpt.tie_weights;
  };
  CHECK(with_head("same"));
  CHECK_FALSE(with_head("diff"));
  CHECK_THAT(test::error_of<UserError>([&] { with_head("diff", {"gpt_config.tie_weights=true"}); }),
             Contains("tie_weights is false there, true here"));
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
             Contains("gpt_config.init_from") && Contains("no such folder"));
}

TEST_CASE("a number outside the range of its configuration key is refused in one line") {
  CHECK_THAT(error(std::string(kGpt2) + R"(, "attn_pdrop": 1})"),
             Contains("attn_pdrop is 1, not >= 0 and < 1"));
  CHECK_THAT(error(R"({"model_type": "gpt2", "vocab_size": -5})"),
             Contains("vocab_size is -5, not >= 1"));
  CHECK_THAT(not_followed(std::string(kBert) + R"(, "layer_norm_eps": -1})"),
             Contains("layer_norm_eps is -1, not > 0"));
  CHECK_THAT(not_followed(R"({"model_type": "roberta", "pad_token_id": 600})"),
             Contains("max_position_embeddings is 512, not above pad_token_id + 1 = 601"));
  CHECK_THAT(error(R"({"model_type": "gpt2", "n_layer": 1000000000})"),
             Contains("n_layer is 1000000000, above 10000"));
  CHECK_THAT(error(R"({"model_type": "gpt2", "n_embd": 1000000000})"),
             Contains("n_embd is 1000000000, above 1000000"));
}

TEST_CASE("a BERT's problem_type is read, and follows from its labels where it is null") {
  const test::TestFolder folder;
  const auto read = [&](const std::string& type, const std::string& labels) {
    test::write_file("config.json", R"({"model_type": "bert", "problem_type": )" + type +
                                        R"(, "architectures": ["BertForSequenceClassification"],)" +
                                        R"( "id2label": )" + labels + "}");
    return read_pretrained_bert(folder.str());
  };
  const std::string one = R"({"0": "LABEL_0"})", two = R"({"0": "a", "1": "b"})";
  CHECK(read("null", one).shape.problem_type == ProblemType::kRegression);
  CHECK(read("null", two).shape.problem_type == ProblemType::kSingleLabel);
  CHECK(read(R"("regression")", one).unsupported.empty());
  const PretrainedBert several = read(R"("multi_label_classification")", two);
  CHECK(several.shape.problem_type == ProblemType::kMultiLabel);
  CHECK(several.unsupported.empty());
  CHECK(read(R"("regression")", two).unsupported ==
        std::vector<std::string>{"problem_type is regression of 2 numbers, not of 1"});
  CHECK(read(R"("ranking")", two).unsupported ==
        std::vector<std::string>{"problem_type is ranking, not one of single_label_classification, "
                                 "multi_label_classification, regression"});
}

}  // namespace ddp::train
