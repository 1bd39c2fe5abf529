#include "tests/support/catch.h"

#include "tests/trainer/config/test_files.h"
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
