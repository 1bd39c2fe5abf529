#include "tests/support/catch.h"

#include "tests/trainer/config/test_files.h"
#include "trainer/app/load_run.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

Config unusual_config() {
  Config config;
  config.data.path = "/tmp/\"quoted\" \xc3\xa4.txt";
  config.data.truncate = 1.0 / 3.0;
  config.gpt = {
      "",          2, 4, 64, 0.1, 0.2, 0.3, Activation::kGeluTanh, true, "/m", true, {false, 512.0},
      {false, 8.0}};
  config.trainer.max_steps = 40;
  config.trainer.use_amp = true;
  config.trainer.amp_dtype = AmpDtype::kBFloat16;
  config.optimizer.betas = {0.9, 0.1 + 0.2};
  config.optimizer.eps = 5e-324;
  config.distributed.backend = Backend::kGloo;
  config.hydra.verbose.all = true;
  return config;
}

TEST_CASE("a configuration written as JSON reads back exactly") {
  for (const Config& config : {Config{}, unusual_config()}) {
    const std::string json = config_to_json(config);
    CHECK(config_to_json(config_from_json(json)) == json);
  }
  const Config back = config_from_json(config_to_json(unusual_config()));
  CHECK(back.data.truncate == 1.0 / 3.0);
  CHECK(back.optimizer.betas[1] == 0.1 + 0.2);
  CHECK(back.optimizer.eps == 5e-324);
  CHECK(back.trainer.max_steps == 40);
  CHECK(back.gpt.model_type.empty());
}

std::string json_error(const std::string& json) {
  return test::error_of<RunError>([&] { config_from_json(json); });
}

TEST_CASE(
    "a stored configuration that is none, or newer, is a failed run and not a user's mistake") {
  CHECK(json_error("").find("not a JSON object") != std::string::npos);
  CHECK(json_error("[1]").find("not a JSON object") != std::string::npos);
  CHECK(json_error("{\"data_config\": {\"path\"").find("damaged") != std::string::npos);
  CHECK(json_error(R"({"gpt_config":{"n_expert":8}})") ==
        "stored configuration: gpt_config.n_expert: unknown key, written by a newer version; use "
        "that version");
  std::string without = config_to_json(Config{});
  without.erase(without.find("\"seed\":1337,"), 12);
  CHECK(config_to_json(config_from_json(without)) == config_to_json(Config{}));
  CHECK(json_error(R"({"trainer_config":{"seed":"x"}})").find("trainer_config.seed") !=
        std::string::npos);
  CHECK(json_error(R"({"trainer_config":{"seed":18446744073709551615}})").find("too large") !=
        std::string::npos);
}

TEST_CASE("a stored configuration with 200,000 nested brackets is damaged, not a stack overflow") {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  CHECK(json_error(R"({"data_config": {"path": )" + deep + "}}") ==
        "stored configuration: nested too deeply; the snapshot is damaged");
}

TEST_CASE("YAML for the log holds every key and loads again") {
  const test::TestFolder folder;
  test::write_file("input.txt", "text");
  Config config = unusual_config();
  config.data.path = folder.path("input.txt");
  config.gpt.init_from = "";
  config.trainer.snapshot_path = folder.path("s.pt");
  config.trainer.snapshot_cache = folder.path("cache");
  config.hydra.run_dir = folder.str();
  test::write_file("cfg.yaml", config_to_yaml(config));
  CHECK(config_to_json(load_config(ConfigSource::of_file("cfg.yaml"), {})) ==
        config_to_json(config));
}

TEST_CASE("the default configuration file loads") {
  const std::string file = DDP_SOURCE_DIR "/configs/gpt2_train_cfg.yaml";
  const test::TestFolder folder;
  test::write_file("input.txt", "text");
  const Config config = load_config(ConfigSource::of_file(file), {"data_config.path=input.txt"});
  CHECK(config.gpt.n_embd == 512);
  CHECK(config.trainer.use_amp);
}

}  // namespace
}  // namespace ddp::train
