#include "tests/support/catch.h"

#include "tests/config/test_files.h"
#include "trainer/config/node_text.h"
#include "trainer/config/suggest.h"
#include "trainer/config/yaml_reader.h"
#include "trainer/config/yaml_scalar.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

std::string as_json(const std::string& yaml) { return node_to_json(read_yaml(yaml, "cfg.yaml")); }

std::string yaml_error(const std::string& yaml) {
  return test::error_of<UserError>([&] { read_yaml(yaml, "cfg.yaml"); });
}

struct ScalarCase {
  const char* text;
  const char* json;
};

TEST_CASE("plain scalars are typed as OmegaConf's loader types them") {
  const auto c = GENERATE(values<ScalarCase>({
      {"1", "1"},
      {"-12", "-12"},
      {"+3", "3"},
      {"1_000", "1000"},
      {"010", "8"},
      {"0x1F", "31"},
      {"0b101", "5"},
      {"1:30", "90"},
      {"-1:30", "-90"},
      {"08", "\"08\""},
      {"0o10", "\"0o10\""},
      {"1:75", "\"1:75\""},
      {"99999999999999999999", "99999999999999999999"},
      {"0xffffffffffffffffffff", "1208925819614629174706175"},
      {"1e-3", "0.001"},
      {"1E5", "100000.0"},
      {"1.", "1.0"},
      {".5", "0.5"},
      {"-.5", "\"-.5\""},
      {"1_0.5", "10.5"},
      {"1e16", "1e+16"},
      {"1.5e-7", "1.5e-07"},
      {"+1.0", "1.0"},
      {"1:30.5", "90.5"},
      {"1e400", "{\"$float\": \"inf\"}"},
      {".inf", "{\"$float\": \"inf\"}"},
      {"-.INF", "{\"$float\": \"-inf\"}"},
      {".nan", "{\"$float\": \"nan\"}"},
      {"inf", "\"inf\""},
      {"nan", "\"nan\""},
      {"1e", "\"1e\""},
      {"e5", "\"e5\""},
      {"1.2.3", "\"1.2.3\""},
      {"yes", "true"},
      {"Off", "false"},
      {"TRUE", "true"},
      {"tRUE", "\"tRUE\""},
      {"y", "\"y\""},
      {"n", "\"n\""},
      {"~", "null"},
      {"Null", "null"},
      {"None", "\"None\""},
      {"2026-11-20", "\"2026-11-20\""},
      {"abc", "\"abc\""},
  }));
  CAPTURE(c.text);
  CHECK(node_to_json(type_plain_scalar(c.text)) == c.json);
}

TEST_CASE("quotes and !!str make text, other tags their type") {
  CHECK(as_json("a: \"1\"\nb: 'yes'\nc: !!str 5\nd: !!int \"7\"\ne: !!float 1\nf: !!bool \"no\"") ==
        R"({"a": "1", "b": "yes", "c": "5", "d": 7, "e": 1.0, "f": false})");
  CHECK(yaml_error("a: !!int x").find("cfg.yaml:1:4: ") == 0);
  CHECK(yaml_error("a: !thing x").find("'!thing'") != std::string::npos);
}

TEST_CASE("anchors copy values and merge keys add what the map does not hold itself") {
  CHECK(as_json("base: &b {x: 1, y: 2}\nd:\n  y: 3\n  <<: *b") ==
        R"({"base": {"x": 1, "y": 2}, "d": {"x": 1, "y": 3}})");
  CHECK(as_json("a: &a {x: 1}\nb: &b {x: 2, z: 3}\nc:\n  <<: [*a, *b]") ==
        R"({"a": {"x": 1}, "b": {"x": 2, "z": 3}, "c": {"x": 1, "z": 3}})");
  CHECK(as_json("'<<': 1") == R"({"<<": 1})");
  CHECK(yaml_error("a:\n  <<: 3") ==
        "cfg.yaml:2:3: not valid YAML: expected a mapping or list of mappings for merging");
}

TEST_CASE("a key given twice is an error with both lines") {
  CHECK(yaml_error("a: 1\nb: 2\na: 3") ==
        "cfg.yaml:3:1: not valid YAML: found duplicate key 'a'; first given at line 1, keep one of "
        "them");
}

TEST_CASE("broken YAML is reported with line and column") {
  CHECK(yaml_error("a: 1\nb: [1, 2\nc: 3").find("cfg.yaml:3:2: not valid YAML: ") == 0);
  CHECK(yaml_error("a: \"x").find("cfg.yaml:1:") == 0);
  CHECK(yaml_error("a: 1\n---\nb: 2").find("single document") != std::string::npos);
}

TEST_CASE("YAML errors say what to do, with the place of the mistake") {
  CHECK(yaml_error("a:\n  seed 1\n  b: 2") ==
        "cfg.yaml:3:4: not valid YAML: mapping values are not allowed here; line 2 has no colon: "
        "write key: value, with a space after it");
  CHECK(yaml_error("a: 1\nseed 1\nb: 2")
            .find("cfg.yaml:2:1: not valid YAML: could not find expected "
                  "':' after 'seed 1'; write key: value") == 0);
  CHECK(yaml_error("a: 1\n\tb: 2").find("indent with spaces") != std::string::npos);
  CHECK(yaml_error("a: &x 1\nb: &x 2").find("duplicate anchor 'x'; first occurrence at line 1") !=
        std::string::npos);
  CHECK(yaml_error("a: \"\\q\"").find("unknown escape character 'q'") != std::string::npos);
}

TEST_CASE("block scalars keep and fold line breaks as PyYAML does") {
  CHECK(as_json("a: >+\n  x\n\n  y\n\n") == R"({"a": "x\ny\n\n"})");
  CHECK(as_json("a: \"\\N\\_\\L\\P\"") == "{\"a\": \"\u0085\u00a0\u2028\u2029\"}");
  CHECK(as_json("a: '\n\n\n'") == R"({"a": "\n\n"})");
  CHECK(as_json("a: 99999999999999999999:1") == R"({"a": 5999999999999999999941})");
}

TEST_CASE("a value that contains itself is an error, not an endless loop") {
  CHECK(yaml_error("a: &x [*x]").find("cannot contain itself") != std::string::npos);
}

TEST_CASE("aliases cannot blow a small file up to gigabytes") {
  std::ostringstream text;
  text << "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 12; ++i) {
    text << "a" << i << ": &a" << i << " [";
    for (int k = 0; k < 10; ++k) text << (k == 0 ? "*a" : ", *a") << i - 1;
    text << "]\n";
  }
  CHECK(yaml_error(text.str()).find("too large") != std::string::npos);
}

TEST_CASE("deep nesting is refused before it ends the stack") {
  CHECK(yaml_error(std::string(5000, '[')).find("cfg.yaml:1:") == 0);
}

TEST_CASE("empty text is null, and the YAML written reads back equal") {
  CHECK(as_json("") == "null");
  CHECK(as_json("# only a comment\n") == "null");
  const Node node = read_yaml(
      "a: ['1', 1, 1.0, null, yes, 'x: y', '', '#', [], {}, [[1], {k: v}]]\nb: {c: {d: .inf}}",
      "x");
  CHECK(same_value(read_yaml(node_to_yaml(node), "y"), node));
}

TEST_CASE("floats print as Python's repr does") {
  CHECK(python_float(1e-5) == "1e-05");
  CHECK(python_float(0.0001) == "0.0001");
  CHECK(python_float(1e15) == "1000000000000000.0");
  CHECK(python_float(1e16) == "1e+16");
  CHECK(python_float(-123.456) == "-123.456");
  CHECK(python_float(1.7976931348623157e308) == "1.7976931348623157e+308");
  CHECK(python_float(-0.0) == "-0.0");
}

TEST_CASE("the nearest word counts swapped neighbours as one edit") {
  CHECK(edit_distance("bacth", "batch") == 1);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(nearest("bach_size", {"block_size", "batch_size"}) == "batch_size");
  CHECK(nearest("zzz", {"batch_size"}).empty());
}

}  // namespace
}  // namespace ddp::train
