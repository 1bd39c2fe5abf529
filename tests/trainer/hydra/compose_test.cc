#include "tests/support/catch.h"

#include "tests/trainer/config/test_files.h"
#include "trainer/hydra/compose/compose.h"
#include "trainer/hydra/compose/sweep_plan.h"
#include "trainer/hydra/yaml/node_text.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using test::write_file;

/// A program with one key.
const KnownKeys& keys() {
  static const KnownKeys known({"section.seed", "hydra.mode"});
  return known;
}

class Composing : public test::TestFolder {
 public:
  Composing() {
    std::filesystem::create_directories("db");
    write_file("db/mysql.yaml", "driver: mysql\nport: 3306\n");
    write_file("db/pg.yaml", "driver: pg\nport: 5432\n");
    write_file("base.yaml", "lr: 0.5\nname: base\n");
  }

  std::string json(const std::string& text, const std::vector<std::string>& overrides = {}) const {
    write_file("cfg.yaml", text);
    ConfigSource source = ConfigSource::of_file("cfg.yaml");
    source.any_keys = true;
    return node_to_json(without_key(compose_config(source, overrides, keys()).root, "hydra"));
  }
  std::string error(const std::string& text, const std::vector<std::string>& overrides = {}) const {
    return test::error_of<UserError>([&] { json(text, overrides); });
  }
};

TEST_CASE("a defaults list brings other files, and _self_ says where the file itself comes") {
  const Composing composing;
  CHECK(composing.json("defaults: [base, _self_]\nname: mine") == R"({"lr":0.5,"name":"mine"})");
  CHECK(composing.json("defaults: [_self_, base]\nname: mine") == R"({"name":"base","lr":0.5})");
}

TEST_CASE("a config group is chosen in the file and on the command line") {
  const Composing composing;
  const std::string text = "defaults: [db: mysql]\nk: 1";
  CHECK(composing.json(text) == R"({"db":{"driver":"mysql","port":3306},"k":1})");
  CHECK(composing.json(text, {"db=pg", "db.port=1"}) == R"({"db":{"driver":"pg","port":1},"k":1})");
  CHECK(composing.json(text, {"~db"}) == R"({"k":1})");
  CHECK(composing.json("k: 1", {"+db@place=pg"}) ==
        R"({"k":1,"place":{"driver":"pg","port":5432}})");
}

TEST_CASE("a choice that cannot be made says what there is to choose from") {
  const Composing composing;
  CHECK(composing.error("defaults: [db: mysq]") ==
        "cfg.yaml:1:12: in 'cfg': no option 'db/mysq'; did you mean 'mysql'? (options of 'db': "
        "mysql, pg)");
  CHECK(composing.error("k: 1", {"db=pg"}) ==
        "command line: db=pg: 'db' is not in the defaults list, so it cannot be overridden; to add "
        "it, write +db=pg");
  CHECK(composing.error("defaults:\n- db: ???") ==
        "cfg.yaml:2:3: no option chosen for 'db'; write db=OPTION, one of: mysql, pg");
}

TEST_CASE("a glob or a range of nothing is an error, not a sweep of no jobs") {
  const Composing composing;
  write_file("cfg.yaml", "defaults: [db: mysql]\nk: 1");
  const auto error = [](const std::string& text) {
    ConfigSource source = ConfigSource::of_file("cfg.yaml");
    source.any_keys = true;
    return test::error_of<UserError>([&] { plan_sweep(source, {text}, keys()); });
  };
  CHECK(error("db=glob(x*)") ==
        "--multirun: 'db' has no value: its glob() matches no option, or its range() is empty; "
        "write the values out");
  CHECK(error("k=glob(*)").find("'k' has no value") != std::string::npos);
  CHECK(error("k=range(5,1)").find("its range() is empty") != std::string::npos);
  CHECK(error("hydra.sweep.dir=") == "hydra.sweep.dir: is empty; give a folder");
}

TEST_CASE("hydra.mode asks for a sweep, in the file or on the command line") {
  const Composing composing;
  const auto asks = [](const std::string& text, const std::vector<std::string>& overrides) {
    write_file("cfg.yaml", text);
    return asks_for_sweep(ConfigSource::of_file("cfg.yaml"), overrides, keys());
  };
  const std::string sweeps = "hydra: {mode: MULTIRUN}";
  CHECK_FALSE(asks("{}", {}));
  CHECK_FALSE(asks("{}", {"section.seed=1,2"}));
  CHECK(asks(sweeps, {"section.seed=1,2"}));
  CHECK(asks("{}", {"hydra.mode=MULTIRUN", "section.seed=1,2"}));
  CHECK_FALSE(asks(sweeps, {"hydra.mode=RUN"}));
  CHECK(test::error_of<UserError>([&] { asks("{}", {"hydra.mode=FOO"}); }) ==
        "command line: hydra.mode=FOO: 'FOO' is not a mode; give RUN or MULTIRUN");
}

TEST_CASE("a key that Hydra does not have is refused with the nearest one") {
  const Composing composing;
  CHECK(composing.error("hydra:\n  runn: {dir: x}") ==
        "cfg.yaml:2:3: hydra.runn: unknown key; did you mean "
        "'hydra.run'?");
}

TEST_CASE("an option of a group cannot follow from the block hydra, which is composed later") {
  const Composing composing;
  CHECK(composing.error("defaults: [db: '${hydra:job.name}']")
            .find("cannot resolve '${hydra:job.name}' in the defaults list") != std::string::npos);
}

TEST_CASE("files that multiply through defaults lists are refused") {
  const Composing composing;
  for (int i = 0; i < 30; ++i) {
    const std::string next = "f" + std::to_string(i + 1);
    write_file("f" + std::to_string(i) + ".yaml", "defaults: [" + next + "@x, " + next + "@y]");
  }
  write_file("f30.yaml", "k: 1");
  CHECK(composing.error("defaults: [f0]").find("bring too many files") != std::string::npos);
}

TEST_CASE("a file without an end is refused") {
  CHECK(test::error_of<UserError>([] {
          compose_config(ConfigSource::of_file("/dev/zero"), {}, keys());
        }).find("/dev/zero: is larger than 4194304 bytes") == 0);
}

TEST_CASE("a file that includes itself is an error") {
  const Composing composing;
  write_file("loop.yaml", "defaults: [loop]");
  CHECK(composing.error("defaults: [loop]").find("include each other in a cycle") !=
        std::string::npos);
}

}  // namespace
}  // namespace ddp::train
