#include "tests/support/catch.h"

#include "tests/trainer/config/test_files.h"
#include "trainer/app/load_run.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/config/keys/idle_keys.h"
#include "trainer/config/show/config_show.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

TEST_CASE("the shown configuration is typed, holds the defaults and keeps what is missing") {
  const test::TestFolder folder;
  test::write_file("cfg.yaml", "trainer_config: {batch_size: \"5\"}\nhydra: {run: {dir: x}}\n");
  ShowOptions options;
  options.format = ShowFormat::kJson;
  const std::string json =
      show_config(ConfigSource::of_file("cfg.yaml"), {"trainer_config.seed=7"}, options);
  CHECK(json.find(R"("batch_size":5)") != std::string::npos);
  CHECK(json.find(R"("seed":7)") != std::string::npos);
  CHECK(json.find(R"("path":"???")") != std::string::npos);
  CHECK(json.find("hydra") == std::string::npos);
  options.throw_on_missing = true;
  CHECK(test::error_of<UserError>(
            [&] { show_config(ConfigSource::of_file("cfg.yaml"), {}, options); }) ==
        "cfg.yaml: data_config.path: no value given; add data_config.path=VALUE to the "
        "command "
        "line or to the file");
}

TEST_CASE("what --cfg prints is the configuration of the same run") {
  const test::TestFolder folder;
  test::write_file("text.txt", "text");
  const std::vector<std::vector<std::string>> runs = {
      {"data_config.path=text.txt", "trainer_config.max_steps=5"},
      {"data_config.sources=[{path: text.txt}]", "trainer_config.global_batch_size=432"},
      {"data_config.path=text.txt", "model=llama", "llama_config.model_type=smollm2-135m"},
      {"data_config.path=text.txt", "gpt_config.model_type=gpt-nano"},
      {"data_config.path=text.txt", "model=llama"},
      {"data_config.path=text.txt", "model=llama", "llama_config.family=gemma3_text",
       "llama_config.n_layer=2", "llama_config.n_head=2", "llama_config.n_embd=16"},
      {"data_config.path=text.txt", "task=masked_lm"},
      {"data_config.path=text.txt", "task=masked_lm", "bert_config.family=roberta"},
      {"data_config.path=text.txt", "task=text_classification"},
      {"data_config.path=text.txt", "task=image_classification"}};
  test::write_file("cfg.yaml", "{}");
  const auto loaded = [](const std::string& file, std::vector<std::string> overrides) {
    overrides.emplace_back("hydra.run.dir=out");
    const RunConfig run = load_run(ConfigSource::of_file(file), overrides);
    CHECK(idle_keys(run.config, run.given).empty());
    return config_to_json(run.config);
  };
  for (const auto& overrides : runs) {
    test::write_file("shown.yaml", show_config(ConfigSource::of_file("cfg.yaml"), overrides, {}));
    CHECK(loaded("shown.yaml", {}) == loaded("cfg.yaml", overrides));
  }
}

TEST_CASE("where any keys are taken, Hydra's rule for new ones holds") {
  const test::TestFolder folder;
  test::write_file("cfg.yaml", "a: 1\nb: {c: '${a}'}\n");
  ConfigSource source = ConfigSource::of_file("cfg.yaml");
  source.any_keys = true;
  ShowOptions options;
  options.format = ShowFormat::kJson;
  options.resolve = true;
  CHECK(show_config(source, {"+d=[x]"}, options) == "{\"a\":1,\"b\":{\"c\":1},\"d\":[\"x\"]}\n");
  options.package = std::string("b");
  CHECK(show_config(source, {}, options) == "{\"c\":1}\n");
  CHECK(test::error_of<UserError>([&] { show_config(source, {"d=1"}, options); }) ==
        "command line: d=1: 'd' is not in the configuration; to add it, write +d=1");
}

}  // namespace
}  // namespace ddp::train
