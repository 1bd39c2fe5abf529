#include "tests/support/catch.h"

#include "tests/trainer/config/test_files.h"
#include "trainer/hydra/override/override_apply.h"
#include "trainer/hydra/override/overrides.h"
#include "trainer/hydra/yaml/node_text.h"
#include "trainer/hydra/yaml/yaml_reader.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

struct ValueCase {
  const char* text;
  const char* json;
};

std::string value_of(const std::string& text) {
  return node_to_json(parse_override("a=" + text).value);
}

std::string override_error(const std::string& text) {
  return test::error_of<UserError>([&] { parse_override(text); });
}

TEST_CASE("values of overrides are typed as Hydra types them") {
  const auto c = GENERATE(values<ValueCase>({
      {"1", "1"},
      {"-1_000", "-1000"},
      {"007", "\"007\""},
      {"1.5", "1.5"},
      {"1e-3", "0.001"},
      {".5", "0.5"},
      {"-.5", "-0.5"},
      {"inf", "{\"$float\":\"inf\"}"},
      {"-INF", "{\"$float\":\"-inf\"}"},
      {"TrUe", "true"},
      {"false", "false"},
      {"NULL", "null"},
      {"yes", "\"yes\""},
      {"", "\"\""},
      {"trueish", "\"trueish\""},
      {"a b", "\"a b\""},
      {"  x  ", "\"x\""},
      {"1.2.3", "\"1.2.3\""},
      {"./data/in.txt", "\"./data/in.txt\""},
      {"s3://b/k", "\"s3://b/k\""},
      {"'1'", "\"1\""},
      {"\"a,b\"", "\"a,b\""},
      {"'it\\'s'", "\"it's\""},
      {"'a\\b'", "\"a\\\\b\""},
      {"a\\,b", "\"a,b\""},
      {"[]", "[]"},
      {"[1, a,'b c',[2]]", "[1,\"a\",\"b c\",[2]]"},
      {"{a: 1, b:{c:x}}", "{\"a\":1,\"b\":{\"c\":\"x\"}}"},
      {"{}", "{}"},
      {"${a.b}", "\"${a.b}\""},
      {"x_${a}", "\"x_${a}\""},
      {"10_000", "10000"},
      {"nano", "\"nano\""},
  }));
  CAPTURE(c.text);
  CHECK(value_of(c.text) == c.json);
}

TEST_CASE("an override that is none says how one is written") {
  CHECK(override_error("foo") ==
        "command line: foo: not an override; write KEY=VALUE, e.g. trainer_config.seed=1");
  CHECK(override_error("a b=1").find("'a b' is not a key") != std::string::npos);
  CHECK(override_error("=1").find("is not a key") != std::string::npos);
  CHECK(override_error("a..b=1").find("is not a key") != std::string::npos);
}

TEST_CASE("a value outside the grammar says to quote it") {
  for (const char* text :
       {"a=[1", "a={x", "a=x]", "a=\xc3\xa4", "a='x", "a=~/x", "a=b=c", "a=[1,,2]"}) {
    CAPTURE(text);
    CHECK(override_error(text).find(std::string("command line: ") + text) == 0);
    CHECK(override_error(text).find("quote the value") != std::string::npos);
  }
}

std::vector<std::string> swept(const std::string& text) {
  return sweep_values(*parse_override("a=" + text).sweep, {});
}

TEST_CASE("ranges are counted and sorted within 64 bits") {
  CHECK(swept("range(-9000000000000000000,9000000000000000000,6000000000000000000)") ==
        std::vector<std::string>{"-9000000000000000000", "-3000000000000000000",
                                 "3000000000000000000"});
  CHECK(swept("sort(range(5,1))").empty());
  CHECK(swept("sort(range(1,5,2),reverse=true)") == std::vector<std::string>{"3", "1"});
  CHECK(swept("sort(range(-2,3,2),reverse=true)") == std::vector<std::string>{"2", "0", "-2"});
  CHECK(swept("range(9223372036854775805,9223372036854775807)") ==
        std::vector<std::string>{"9223372036854775805", "9223372036854775806"});
  CHECK(swept("range(0,0.4,0.1)") == std::vector<std::string>{"0.0", "0.1", "0.2", "0.3"});
  CHECK(swept("range(5,1,-9223372036854775808)") == std::vector<std::string>{"5"});
  for (const char* text : {"a=range(9223372036854775807)", "a=range(0,1,1e-300)"}) {
    CAPTURE(text);
    CHECK(override_error(text).find("too many values") != std::string::npos);
  }
  CHECK(override_error("a=interval(0,1)").find("use range() or choice()") != std::string::npos);
}

TEST_CASE("a list without brackets names the ways to write it") {
  const std::string error =
      test::error_of<UserError>([] { refuse_sweeps({parse_override("a=1,2")}); });
  CHECK(error.find("several values for") != std::string::npos);
  CHECK(error.find("write [a,b] for a list") != std::string::npos);
}

std::string applied(const std::string& yaml, const std::vector<std::string>& overrides,
                    bool may_create = false) {
  Node root = read_yaml(yaml, "cfg.yaml");
  for (const std::string& text : overrides) apply_override(root, parse_override(text), may_create);
  return node_to_json(root);
}

TEST_CASE("overrides change, add, force and delete keys") {
  CHECK(applied("a: {b: 1}", {"a.b=2"}) == R"({"a":{"b":2}})");
  CHECK(applied("a: {b: 1}", {"+a.c=2", "+d.e=x"}) == R"({"a":{"b":1,"c":2},"d":{"e":"x"}})");
  CHECK(applied("a: {b: 1}", {"++a.b=2", "++a.c=3"}) == R"({"a":{"b":2,"c":3}})");
  CHECK(applied("a: {b: 1, c: 2}", {"~a.b"}) == R"({"a":{"c":2}})");
  CHECK(applied("a: {b: 1, c: 2}", {"~a.b=1"}) == R"({"a":{"c":2}})");
  CHECK(applied("a: {b: 1, c: 2}", {"a={b:3}"}) == R"({"a":{"b":3,"c":2}})");
  CHECK(applied("a: [1, 2]", {"a=[3]"}) == R"({"a":[3]})");
}

std::string apply_error(const std::string& yaml, const std::string& text) {
  return test::error_of<UserError>([&] { applied(yaml, {text}); });
}

TEST_CASE("overrides that do not fit the configuration say so with the fix") {
  CHECK(apply_error("a: 1", "b=1") ==
        "command line: b=1: 'b' is not in the configuration; to add it, write +b=1");
  CHECK(apply_error("a: 1", "+a=2").find("'a' is already in the configuration") !=
        std::string::npos);
  CHECK(apply_error("a: 1", "~b").find("'b' is not in the configuration") != std::string::npos);
  CHECK(apply_error("a: 1", "~a=2").find("'a' is 1, not 2") != std::string::npos);
}

}  // namespace
}  // namespace ddp::train
