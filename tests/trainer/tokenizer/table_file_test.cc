// Tables of texts: what RFC 4180 and JSON lines allow, and what is refused with its line.
#include "trainer/data/text/table_file.h"

#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/user_error.h"

namespace ddp::test {

using namespace ddp::train;

namespace {

using Catch::Contains;

constexpr const char* kKey = "data_config.path";
const TableColumns kReviews = {"text", "label"};

std::vector<TableRow> rows_in(const std::string& name, const std::string& content,
                              const TableColumns& columns = kReviews) {
  const TempFolder folder;
  return read_table(kKey, folder.write(name, content), columns);
}

std::string table_error(const std::string& name, const std::string& content) {
  return user_error_of([&] { rows_in(name, content); });
}

}  // namespace

TEST_CASE("quoted fields of a table hold separators, quotes and line ends") {
  const auto rows = rows_in("a.csv",
                            "id,text,label\r\n"
                            "1,\"one, two\",yes\r\n"
                            "\r\n"
                            "2,\"he said \"\"no\"\"\r\nand left\n\",\"no\"\r\n"
                            "3,in \"the\" middle,yes\n"
                            "4,\"\",no");
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].text == "one, two");
  CHECK(rows[0].line == 2);
  CHECK(rows[1].text == "he said \"no\"\r\nand left\n");
  CHECK(rows[1].label == "no");
  CHECK(rows[1].line == 4);
  CHECK(rows[2].text == "in \"the\" middle");
  CHECK(rows[2].line == 7);
  CHECK(rows[3].text.empty());
  CHECK(rows[3].label == "no");
}

TEST_CASE("a byte order mark, tabs and another order of columns are read as they are meant") {
  const auto rows = rows_in("a.tsv", "\xEF\xBB\xBFlabel\ttext\nyes\tone, two\nno\t\"a\tb\"\n");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].text == "one, two");
  CHECK(rows[0].label == "yes");
  CHECK(rows[1].text == "a\tb");
}

TEST_CASE("JSON lines give texts, and labels of any simple type") {
  const auto rows = rows_in("a.jsonl",
                            "{\"text\": \"one\\ntwo\", \"label\": 3}\n\n"
                            "{\"label\": true, \"text\": \"\\u00e4\", \"more\": [1]}\r\n"
                            "{\"text\": null, \"label\": \"x\"}");
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].text == "one\ntwo");
  CHECK(rows[0].label == "3");
  CHECK(rows[1].text == "\xC3\xA4");
  CHECK(rows[1].label == "true");
  CHECK(rows[1].line == 3);
  CHECK(rows[2].text.empty());
}

TEST_CASE("a table ends its lines with CR alone, and its name's ending is in any case") {
  const auto rows = rows_in("A.CSV", "text,label\rone,yes\r\"a\rb\",no\r");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].text == "one");
  CHECK(rows[0].label == "yes");
  CHECK(rows[1].label == "no");
  CHECK(rows_in("a.JSONL", R"({"text": "one", "label": 1})").size() == 1);
}

TEST_CASE("a table that is separated by something else is refused by name") {
  CHECK_THAT(table_error("a.csv", "text;label\none;yes\n"),
             Contains("its header, text;label, seems to be separated by ';', not by ','; save it"));
  CHECK_THAT(table_error("a.csv", "text\tlabel\n"), Contains("separated by tabs, not by ','"));
  CHECK_THAT(table_error("a.tsv", "text,label\n"), Contains("separated by ',', not by tabs"));
  CHECK_THAT(table_error("a.csv", "text\none\n"), Contains("has no column label"));
}

TEST_CASE("fields that no table has are refused with their line before they take memory") {
  const std::string long_field(5'000'000, 'x');
  CHECK_THAT(table_error("a.csv", "text,label\n" + long_field + ",x\n"),
             Contains("a.csv:2: has a field of 5.0 MB, more than 4.2 MB"));
  CHECK_THAT(table_error("a.csv", "text,label\n\"" + long_field + "\",x\n"),
             Contains("a.csv:2: has a field of 5.0 MB"));
  CHECK_THAT(table_error("a.jsonl", "{\"label\": 1, \"text\": \"" + long_field + "\"}"),
             Contains("a.jsonl:1: has a field of 5.0 MB"));
  CHECK_THAT(table_error("a.csv", std::string(1'000'000, ',')),
             Contains("a.csv: has more than 10000 fields"));
  std::string members = "{\"a\": 1";
  for (int i = 0; i < 20'000; ++i) members += ", \"b" + std::to_string(i) + "\": 1";
  CHECK_THAT(table_error("a.jsonl", members + "}"),
             Contains("a.jsonl:1: has more than 10000 fields"));
}

TEST_CASE("a refused table is quoted in part, however wide it is") {
  std::string header = "a";
  for (int i = 0; i < 5000; ++i) header += ",column" + std::to_string(i);
  const std::string error = table_error("a.csv", header + "\n");
  CHECK_THAT(error, Contains("its columns are a, column0, ") && Contains("(5001 in all)"));
  CHECK(error.size() < 1000);
}

TEST_CASE("Chinese text in GB18030 is told from text in WINDOWS-1252") {
  CHECK_THAT(table_error("a.csv", "text,label\n\xD5\xE2\xB2\xBF\xB5\xE7\xD3\xB0,1\n"),
             Contains("iconv -f GB18030 -t UTF-8"));
  CHECK_THAT(table_error("a.csv", "text,label\nl'\xE9t\xE9 \xE0 la plage,1\n"),
             Contains("iconv -f WINDOWS-1252 -t UTF-8"));
}

TEST_CASE("a row of JSON may hold NaN, and half a character is named") {
  const auto rows =
      rows_in("a.jsonl", R"({"text": "NaN \" Infinity", "label": 1, "x": NaN, "y": [-Infinity]})");
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].text == "NaN \" Infinity");
  CHECK_THAT(table_error("a.jsonl", R"({"text": "\ud83d", "label": 1})"),
             Contains("a.jsonl:1: half a character"));
}

TEST_CASE("labels are not asked for where none are wanted") {
  CHECK(rows_in("a.csv", "text\none\ntwo\n", {"text", ""}).size() == 2);
  CHECK(rows_in("a.jsonl", R"({"text": "one"})", {"text", ""}).size() == 1);
}

TEST_CASE("what is no table is refused with the key, the file, the line and the fix") {
  CHECK_THAT(table_error("a.csv", "text,stars\none,1\n"),
             Contains("data_config.path: /") &&
                 Contains("a.csv: has no column label; its columns are text, stars; rename one "
                          "of them, or set data_config.label_column"));
  CHECK_THAT(table_error("a.csv", "label,text,text\n"), Contains("has two columns text"));
  CHECK_THAT(table_error("a.csv", "text,label\n\"one\ntwo\",x\na,b,c\n"),
             Contains("a.csv:4: has 3 fields, the header has 2"));
  CHECK_THAT(table_error("a.csv", "text,label\na,b\n\"one,x\n"),
             Contains("a.csv:3: a quoted field is not terminated"));
  CHECK_THAT(table_error("a.csv", "text,label\n\"one\"s,x\n"),
             Contains("a.csv:2: text follows a closing quote"));
  CHECK_THAT(table_error("a.csv", ""), Contains("is empty"));
  CHECK_THAT(table_error("a.csv", "text,label\n\xFF,x\n"), Contains("UTF-8"));
  CHECK_THAT(table_error("a.txt", "text"),
             Contains("expected a file of rows (.csv, .tsv, .jsonl, "));
  CHECK_THAT(table_error("a.jsonl", "{\"text\": \"a\", \"label\": 1}\n[1]\n"),
             Contains("a.jsonl:2: is not a JSON object"));
  CHECK_THAT(table_error("a.jsonl", std::string(300, '[')),
             Contains("a.jsonl:1: is not a JSON object"));
  CHECK_THAT(table_error("a.jsonl", "{\"text\": \"a\"}\n"),
             Contains("a.jsonl:1: has no label; its names are text"));
  CHECK_THAT(
      table_error("a.jsonl", "{\"text\": [1], \"label\": 1}\n"),
      Contains("a.jsonl:1: text is of type array, not a text; its names are text, label; set "
               "data_config.text_column to one of them"));
}

}  // namespace ddp::test
