#include "tests/support/catch.h"

#include "tests/trainer/config/test_files.h"
#include "trainer/hydra/yaml/node_text.h"
#include "trainer/hydra/yaml/yaml_reader.h"
#include "trainer/hydra/yaml/yaml_scalar.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

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
      {"9223372036854775807", "9223372036854775807"},
      {"-9223372036854775808", "-9223372036854775808"},
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
      {"1e400", "{\"$float\":\"inf\"}"},
      {".inf", "{\"$float\":\"inf\"}"},
      {"-.INF", "{\"$float\":\"-inf\"}"},
      {".nan", "{\"$float\":\"nan\"}"},
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
  const auto node = plain_scalar(c.text);
  REQUIRE(node);
  CHECK(node_to_json(*node) == c.json);
}

TEST_CASE("an integer beyond 64 bits is refused, not rounded") {
  CHECK(yaml_error("a: 9223372036854775808") ==
        "cfg.yaml:1:4: not valid YAML: '9223372036854775808' does not fit in 64 bits; quote it if "
        "it is text");
  CHECK_FALSE(plain_scalar("0xffffffffffffffffffff"));
}

TEST_CASE("quotes and !!str make text, other tags their type") {
  CHECK(as_json("a: \"1\"\nb: 'yes'\nc: !!str 5\nd: !!int \"7\"\ne: !!float 1\nf: !!bool \"no\"") ==
        R"({"a":"1","b":"yes","c":"5","d":7,"e":1.0,"f":false})");
  CHECK(yaml_error("a: !!int x").find("cfg.yaml:1:4: ") == 0);
  CHECK(yaml_error("a: !thing x").find("!thing") != std::string::npos);
}

TEST_CASE("anchors copy values and merge keys add what the map does not hold itself") {
  CHECK(as_json("base: &b {x: 1, y: 2}\nd:\n  y: 3\n  <<: *b") ==
        R"({"base":{"x":1,"y":2},"d":{"x":1,"y":3}})");
  CHECK(as_json("a: &a {x: 1}\nb: &b {x: 2, z: 3}\nc:\n  <<: [*a, *b]") ==
        R"({"a":{"x":1},"b":{"x":2,"z":3},"c":{"x":1,"z":3}})");
  CHECK(as_json("'<<': 1") == R"({"<<":1})");
  CHECK(yaml_error("a:\n  <<: 3") ==
        "cfg.yaml:2:3: not valid YAML: << needs a map or a list of maps; give it an *alias");
}

TEST_CASE("a key given twice is an error with both lines") {
  CHECK(yaml_error("a: 1\nb: 2\na: 3") ==
        "cfg.yaml:3:1: not valid YAML: duplicate key 'a'; first given on line 1; keep one");
}

struct Broken {
  const char* yaml;
  const char* error;
};

TEST_CASE("broken YAML is reported with the place, what is wrong, and the fix") {
  const auto c = GENERATE(values<Broken>({
      {"a: 1\nb: [1, 2\nc: 3", "2:4: this list is never closed; close it with ]"},
      {"a: {b: 1\n", "1:4: this map is never closed; close it with }"},
      {"a: [1\nb", "1:4: this list is never closed; close it with ]"},
      {"a: {b: ${c}}", "1:9: expected ',' or '}' here; quote text that contains braces"},
      {"a: [1]]", "1:7: unmatched closing bracket; remove it, or quote the text"},
      {"a: \"x", "1:4: this quote is never closed; close it"},
      {"a: 1\nb: 'x\nc: 2\n", "2:4: this quote is never closed; close it"},
      {"\"", "1:1: this quote is never closed; close it"},
      {"a: 1\n---\nb: 2", "2:1: a second document starts here; remove the `---`"},
      {"a: 1\n...\nb: 2", "3:1: text after the end of the document; remove it, or the `...` above"},
      {"a:\n  seed 1\n  b: 2",
       "3:4: line 2 has no colon; write key: value, with a space after the colon"},
      {"a: 1\nseed 1", "2:1: no colon in 'seed 1'; write key: value"},
      {"a: 1\n b: 2",
       "2:3: a key cannot appear here; check the indentation of this line and the one above"},
      {"a: b: c", "1:5: a second ': ' in the line; quote the value"},
      {"a:\n  b: 1\n c: 2", "3:2: expected 'key: value' here; check the indentation of this line"},
      {"a: 1\n\tb: 2", "2:1: tab in the indentation; indent with spaces"},
      {"a:\n\tb: 2", "2:1: tab in the indentation; indent with spaces"},
      {"a:\n  b:8\n  c: 2", "3:4: line 2 has no space after its colon; write key: value"},
      {"a: 1\nb:8", "2:1: no space after the colon in 'b:8'; write key: value"},
      {"a: 'x\nb: 1\nc: 'y'\n",
       "1:4: this quote is not closed before line 3; close it on its own line"},
      {"[[[[", "1:1: this list is never closed; close it with ]"},
      {"a: - b", "1:4: a list item cannot start here; write '- item' on a line of its own"},
      {"a: @b", "1:4: a value cannot start with this character; quote it"},
      {"a: &x 1\nb: &x 2",
       "2:4: duplicate anchor 'x', first given on line 1; give it another name"},
      {"a: *x", "1:4: this alias has no anchor above; define it with &name first"},
      {"a: \"\\q\"",
       "1:7: unknown escape sequence; write \\\\ for a backslash, or use single quotes"},
      {"a: [1,,2]", "1:7: empty list item; write null for it, or remove the comma"},
      {"a: \xff",
       "1:4: invalid UTF-8 or a control character (byte 0xff); remove it, or save the "
       "file as UTF-8"},
      {"\xc3\xa4: 1\n\xc3\xa4\xc3\xa4: @",
       "2:5: a value cannot start with this character; quote it"},
      {"? [1]\n: b",
       "1:3: a list or map cannot be a key; use a plain word; quote text that contains {"},
      {"a: <<", "1:4: << can only be a key; quote it if it is text"},
  }));
  CAPTURE(c.yaml);
  const std::string error = std::string("cfg.yaml:") + c.error;
  CHECK(yaml_error(c.yaml) == error.substr(0, error.find(": ") + 2) +
                                  "not valid YAML: " + error.substr(error.find(": ") + 2));
}

TEST_CASE("line breaks of any system are read, and a text with one is written in quotes") {
  CHECK(as_json("a: 1\r\nb: x\rc: y") == R"({"a":1,"b":"x","c":"y"})");
  const Node node =
      Node::texts({"x\r", "\x07", "a\tb", "\xc3\xa4", "\xe2\x80\xa8", "...", "--- x"});
  CHECK(same_value(read_yaml(node_to_yaml(node), "y"), node));
}

TEST_CASE("a Unicode line break is escaped where YAML is written: other readers break the line") {
  CHECK(node_to_yaml(Node::texts({"a\xe2\x80\xa8"
                                  "b\xc2\x85"
                                  "c\xe2\x80\xa9"})) == "- \"a\\Lb\\x85c\\P\"\n");
}

TEST_CASE("a quote or a dash at the very end is read as YAML reads it") {
  CHECK(as_json("a: \"x\"\n\n") == R"({"a":"x"})");
  CHECK(as_json("a: |+\n  x\n\n") == R"({"a":"x\n\n"})");
  CHECK(as_json("a: 1\n...\n") == R"({"a":1})");
  CHECK(as_json("---\n# nothing\n") == "null");
}

TEST_CASE("a value that contains itself is an error, not an endless loop") {
  CHECK(yaml_error("a: &x [*x]").find("refers to the value that contains it") != std::string::npos);
}

TEST_CASE("aliases cannot blow a small file up to gigabytes") {
  std::ostringstream text;
  text << "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 12; ++i) {
    text << "a" << i << ": &a" << i << " [";
    for (int k = 0; k < 10; ++k) text << (k == 0 ? "*a" : ", *a") << i - 1;
    text << "]\n";
  }
  CHECK(yaml_error(text.str()).find("more than 20000 values, with aliases expanded") !=
        std::string::npos);
}

TEST_CASE("deep nesting is refused before it ends the stack") {
  CHECK(yaml_error(std::string(5000, '[')).find("cfg.yaml:1:") == 0);
}

TEST_CASE("empty text is null, and the YAML written reads back equal") {
  CHECK(as_json("") == "null");
  CHECK(as_json("# only a comment\n") == "null");
  const Node node = read_yaml(
      "a: ['1', 1, 1.0, null, yes, 'x: y', '', '#', '<<', '=', 'a\nb', '- x', '1e3', 'null', ' x "
      "', [], {}, [[1], {k: v}]]\nb: {c: {d: .inf}}",
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
