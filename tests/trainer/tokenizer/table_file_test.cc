// Tables of texts: what RFC 4180 and JSON lines allow, and what is refused with its line.
#include "trainer/data/text/table_file.h"

#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"
#include "trainer/runtime/error.h"

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
  try {
    rows_in(name, content);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
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
             Contains("line 4: has 3 fields, the header has 2"));
  CHECK_THAT(table_error("a.csv", "text,label\na,b\n\"one,x\n"),
             Contains("line 3: a quoted field is not terminated"));
  CHECK_THAT(table_error("a.csv", "text,label\n\"one\"s,x\n"),
             Contains("line 2: text follows a closing quote"));
  CHECK_THAT(table_error("a.csv", ""), Contains("is empty"));
  CHECK_THAT(table_error("a.csv", "text,label\n\xFF,x\n"), Contains("UTF-8"));
  CHECK_THAT(table_error("a.txt", "text"), Contains("expected a .csv") && Contains(".jsonl"));
  CHECK_THAT(table_error("a.jsonl", "{\"text\": \"a\", \"label\": 1}\n[1]\n"),
             Contains("line 2: is not a JSON object"));
  CHECK_THAT(table_error("a.jsonl", std::string(300, '[')),
             Contains("line 1: is not a JSON object"));
  CHECK_THAT(table_error("a.jsonl", "{\"text\": \"a\"}\n"),
             Contains("line 1: has no label; its names are text"));
  CHECK_THAT(table_error("a.jsonl", "{\"text\": [1], \"label\": 1}\n"),
             Contains("line 1: text is a list or an object; expected text"));
}

}  // namespace ddp::test
