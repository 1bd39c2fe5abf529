#include "tests/support/catch.h"

#include "tests/trainer/config/test_files.h"
#include "trainer/hydra/interpolation/interpolation.h"
#include "trainer/hydra/yaml/node_text.h"
#include "trainer/hydra/yaml/yaml_reader.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

std::string resolved(const std::string& yaml) {
  Node root = read_yaml(yaml, "cfg.yaml");
  const Node composed = read_yaml("hydra: {job: {name: trainer}}", "cfg.yaml");
  resolve_interpolations(root, &composed);
  return node_to_json(root);
}

std::string complaint_about(const std::string& yaml) {
  return test::error_of<UserError>([&] { resolved(yaml); });
}

TEST_CASE("an interpolation alone keeps the type, inside a text it prints as Python does") {
  CHECK(resolved("a: ${b}\nb: 1.0e-05") == R"({"a":1e-05,"b":1e-05})");
  CHECK(resolved("a: x${b}y\nb: true") == R"({"a":"xTruey","b":true})");
  CHECK(resolved("a: ${b}\nb: {c: [1]}") == R"({"a":{"c":[1]},"b":{"c":[1]}})");
}

TEST_CASE("paths are absolute, relative, through lists and nested") {
  CHECK(resolved("a: {b: '${.c}', c: 1, d: '${..e}'}\ne: 2") ==
        R"({"a":{"b":1,"c":1,"d":2},"e":2})");
  CHECK(resolved("a: ['${l.0}', '${l[1]}']\nl: [x, y]") == R"({"a":["x","y"],"l":["x","y"]})");
  CHECK(resolved("a: '${t.${k}}'\nk: z\nt: {z: 3}") == R"({"a":3,"k":"z","t":{"z":3}})");
}

TEST_CASE("a backslash makes an interpolation plain text") {
  CHECK(resolved("a: '\\${b}'\nc: '\\\\${b}'\nb: 1") == R"({"a":"${b}","c":"\\1","b":1})");
}

TEST_CASE("resolvers give what OmegaConf's give") {
  ::setenv("DDP_TEST_LIST", "[1, x]", 1);
  CHECK(resolved("a: '${oc.env:DDP_TEST_LIST}'\nb: '${oc.decode:${oc.env:DDP_TEST_LIST}}'") ==
        R"({"a":"[1, x]","b":[1,"x"]})");
  ::unsetenv("DDP_TEST_LIST");
  CHECK(resolved("a: '${oc.env:DDP_TEST_UNSET,8}'\nb: '${oc.env:DDP_TEST_UNSET,null}'") ==
        R"({"a":"8","b":null})");
  CHECK(
      resolved(
          "a: '${oc.select:x.y,5}'\nb: '${oc.dict.keys:c}'\nd: '${oc.dict.values:c}'\nc: {k: 1}") ==
      R"({"a":5,"b":["k"],"d":[1],"c":{"k":1}})");
  CHECK(resolved("a: '${hydra:job.name}'") == R"({"a":"trainer"})");
}

TEST_CASE("what cannot be resolved is told with the place, the key and the chain") {
  CHECK(complaint_about("a: ${b}\nb: ${c}\nc: ${a}")
            .find("cfg.yaml:1:4: a: interpolation cycle (a -> b -> c -> a)") == 0);
  CHECK(complaint_about("a: ${b}").find("cfg.yaml:1:4: a: interpolation key 'b' not found") == 0);
  CHECK(complaint_about("a: '${b'").find("write \\${ for a literal ${") != std::string::npos);
  CHECK(complaint_about("a: ${b.step}\nb: {steps: 1}").find("did you mean ${b.steps}?") !=
        std::string::npos);
  CHECK(complaint_about("a: {b: '${a}'}").find("it refers to a section that contains it") !=
        std::string::npos);
  CHECK(complaint_about("a: {x: '${b}'}\nb: {y: '${a}'}").find("interpolation cycle") !=
        std::string::npos);
  CHECK(complaint_about("a: ${b}\nb: ???").find("b is still ???") != std::string::npos);
  CHECK(complaint_about("a: '${foo:1}'").find("unknown resolver 'foo'") != std::string::npos);
}

TEST_CASE("interpolations that multiply or nest without end are refused") {
  std::ostringstream text;
  text << "a0: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 8; ++i) {
    text << "a" << i << ": ['${a" << i - 1 << "}'";
    for (int k = 0; k < 9; ++k) text << ", '${a" << i - 1 << "}'";
    text << "]\n";
  }
  CHECK(complaint_about(text.str()).find("too large") != std::string::npos);
  std::ostringstream doubled;
  doubled << "a0: 0123456789\n";
  for (int i = 1; i < 60; ++i)
    doubled << "a" << i << ": '${a" << i - 1 << "}${a" << i - 1 << "}'\n";
  CHECK(complaint_about(doubled.str()).find("too large") != std::string::npos);
  std::ostringstream deep;
  deep << "a: '";
  for (int i = 0; i < 5000; ++i) deep << "${";
  deep << "'";
  CHECK(complaint_about(deep.str()).find("nested too deeply in") != std::string::npos);
}

}  // namespace
}  // namespace ddp::train
