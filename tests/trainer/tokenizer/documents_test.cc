// Files of rows as corpora: every form has the same documents, in memory that does not grow.
#include "trainer/data/text/documents.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/child_program.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/user_error.h"
#include "trainer/data/data_source.h"
#include "trainer/data/tokens/token_shards.h"
#include "trainer/runtime/error.h"
#include "trainer/tokenizer/tokenizer_folder.h"

namespace ddp::test {

using namespace ddp::train;
using Catch::Contains;

namespace {

using Texts = std::vector<std::string>;

/// The documents "one", "two\n\"lines\"", "\u00e4" of a column `story`, next to rows without a
/// text.
const std::map<std::string, std::string> kForms = {
    {"a.jsonl",
     "{\"story\": \"one\", \"n\": 1}\n\n{\"story\": null}\n"
     "{\"n\": [2], \"story\": \"two\\n\\\"lines\\\"\"}\r\n{\"story\": \"\\u00e4\"}"},
    {"a.ndjson",
     "\xEF\xBB\xBF{\"story\": \"one\"}\n{\"story\": \"two\\n\\\"lines\\\"\"}\n"
     "{\"story\": \"\"}\n{\"story\": \"\u00e4\"}\n"},
    {"a.json",
     "[\n  {\"story\": \"one\", \"of\": {\"a\": [\"]\"]}},\n {\"story\": \"two\\n\\\"lines\\\"\"}"
     ", {\"story\": null},{\n \"story\":\"\u00e4\"}\n]\n"},
    {"array.jsonl",
     "[{\"story\":\"one\"},{\"story\":\"two\\n\\\"lines\\\"\"},{\"story\":\"\u00e4\"}]"},
    {"lines.json",
     "{\"story\": \"one\"}\n{\"story\": \"two\\n\\\"lines\\\"\"}\n{\"story\": \"\u00e4\"}"},
    {"a.csv", "n,story\n1,one\n\n2,\"two\n\"\"lines\"\"\"\n3,\n4,\u00e4\n"},
    {"A.TSV", "story\tn\r\none\t1\r\n\"two\n\"\"lines\"\"\"\t2\r\n\u00e4\t\r\n"},
};

Texts all_of(const std::vector<std::string>& files, LeftOut& left_out) {
  Documents documents(files, {"story", ""}, left_out);
  Texts texts;
  for (std::string text; documents.next(text);) texts.push_back(text);
  return texts;
}

std::string error_of(const std::string& name, const std::string& content) {
  const TempFolder folder;
  LeftOut left_out(OnBadSample::kStop);
  return user_error_of([&] { all_of({folder.write(name, content)}, left_out); });
}

Finished tokenize_files(std::vector<std::string> options) {
  options.insert(options.begin(), {DDP_TOKENIZE, "tokenize"});
  ChildOptions child;
  child.argv = std::move(options);
  return run_to_end(child);
}

std::vector<int64_t> copied(const TokenSequence& tokens) {
  std::vector<int64_t> all(static_cast<std::size_t>(tokens.size()));
  tokens.copy(0, all);
  return all;
}

/// 100,000 rows of 1 kB.
std::string write_large(const TempFolder& folder) {
  const std::string path = folder / "large.jsonl";
  std::ofstream file(path);
  const std::string text(1000, 'x');
  for (int i = 0; i < 100'000; ++i) file << "{\"n\": " << i << ", \"story\": \"" << text << "\"}\n";
  return path;
}

/// Peak of this process's memory, bytes.
int64_t peak_memory() {
  ::rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace

TEST_CASE("every form of rows has the same documents, and trains on the same tokens") {
  const TempFolder folder;
  std::vector<int64_t> expected;
  for (const std::string text : {"one", "two\n\"lines\"", "\u00e4"}) {
    for (const char c : text) expected.push_back(static_cast<unsigned char>(c));
    expected.push_back(256);
  }
  for (const auto& [name, content] : kForms) {
    INFO(name);
    const std::string file = folder.write(name, content);
    LeftOut left_out(OnBadSample::kStop);
    CHECK(all_of({file}, left_out) == Texts{"one", "two\n\"lines\"", "\u00e4"});
    DataConfig data;
    data.path = file;
    data.tokenizer = "byte";
    data.text_column = "story";
    CHECK(copied(*open_data(data, nullptr).training) == expected);
    const auto done = tokenize_files({"--tokenizer", "byte", "--text_column", "story",
                                      "--overwrite", "--output", folder / "out", "--input", file});
    INFO(done.err);
    REQUIRE(done.exit == 0);
    const auto tokenizer = load_tokenizer(folder / "out");
    const ShardUse use{tokenizer->size(), tokenizer_fingerprint(*tokenizer)};
    CHECK(copied(TokenShards(find_shards(folder / "out"), use)) == expected);
  }
}

TEST_CASE("a folder or glob of rows is read file by file, and texts next to rows are texts") {
  const TempFolder folder;
  folder.write("a.jsonl", "{\"story\": \"one\"}\n");
  folder.write("b.jsonl", "{\"story\": \"two\"}\n");
  folder.write("c.json", "{}");
  LeftOut left_out(OnBadSample::kStop);
  CHECK(all_of(find_documents(folder / ""), left_out) == Texts{"one", "two"});
  CHECK(all_of(find_documents(folder / "*.jsonl"), left_out) == Texts{"one", "two"});
  folder.write("a.txt", "text");
  CHECK(find_documents(folder / "").empty());
}

TEST_CASE("a row that cannot be used is refused with its file and line, or counted") {
  CHECK_THAT(
      error_of("a.jsonl", "{\"story\": \"a\"}\n{\"tale\": \"b\", \"n\": 1}\n"),
      Contains("a.jsonl:2: has no story; its names are tale, n; set data_config.text_column") &&
          Contains("data_config.on_bad_sample=skip"));
  CHECK_THAT(error_of("a.jsonl", "{\"story\": 3}\n"),
             Contains("a.jsonl:1: story is of type number, not a text; its names are story"));
  CHECK_THAT(error_of("a.jsonl", "{\"messages\": []}\n"),
             Contains("a.jsonl:1: has no story") && Contains("or data_config.format=chat"));
  CHECK_THAT(error_of("a.json", "[{\"story\": \"a\"},\n {\"story\": \"b\""),
             Contains("a.json:2: the array is cut short"));
  CHECK_THAT(error_of("a.json", "[{\"story\": \"a\"}\n {\"story\": \"b\"}]"),
             Contains("a.json:2: a comma is missing between two elements; add it"));
  CHECK_THAT(error_of("a.json", "[{\"story\": \"a\"} x]"),
             Contains("a.json:1: a comma is missing between two elements; add it"));
  CHECK_THAT(error_of("a.jsonl", "[]\n{\"story\": \"a\"}\n"),
             Contains("a.jsonl:1: ") && Contains("data_config.on_bad_sample=skip"));
  CHECK_THAT(error_of("a.csv", "text\na\n"), Contains("a.csv: has no column story"));
  CHECK_THAT(error_of("a.jsonl", "PAR1\n"),
             Contains("a.jsonl: is a Parquet file; name it .parquet"));
  CHECK_THAT(error_of("a.csv", "\x1F\x8B\x08"), Contains("is compressed; unpack it: gzip -dk"));
  const TempFolder folder;
  const std::string file = folder.write(
      "a.jsonl", "{\"story\": \"a\"}\n{\"story\"\n[]\n{\"story\": \"\xFF\"}\n{\"story\": \"b\"}\n");
  LeftOut left_out(OnBadSample::kSkip);
  CHECK(all_of({file}, left_out) == Texts{"a", "b"});
  CHECK(left_out.text() ==
        "3 unusable rows left out; the first: " + file +
            ":2: is incomplete or malformed JSON (at byte 8 of 8); is it truncated?");
  CHECK_THAT(left_out.first().back(), Contains("a.jsonl:4: is not valid UTF-8 at byte 38"));
}

TEST_CASE("a file with rows that cannot be reached ends the run, whatever the policy") {
  const TempFolder folder;
  const auto broken = [&](const std::string& name, const std::string& content) {
    LeftOut left_out(OnBadSample::kSkip);
    try {
      all_of({folder.write(name, content)}, left_out);
    } catch (const BrokenFileError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(broken("a.json", "[{\"story\": \"a\"},\n {\"story\": \"b\""),
             Contains("a.json:2: the array is cut short; complete the file; no row from there on "
                      "can be read, so none is skipped"));
  CHECK_THAT(broken("a.json", "[{\"story\": \"a\"},\n]"),
             Contains("a.json:2: a comma precedes the closing bracket; remove it"));
  CHECK_THAT(broken("a.csv", "story\na\n\"b\nc\n"),
             Contains("a.csv:3: a quoted field is not terminated"));
  CHECK_THAT(broken("a.csv", "story\na\n\"" + std::string((std::size_t{64} << 20U) + 1, 'x')),
             Contains("a.csv:3: starts a row larger than 64 MB"));
  const std::string unreadable = folder / "b.jsonl";
  std::filesystem::create_symlink("/proc/self/mem", unreadable);  // EIO at the first byte
  LeftOut left_out(OnBadSample::kSkip);
  CHECK_THROWS_AS(all_of({unreadable}, left_out), RunError);
}

TEST_CASE("the fingerprint of rows is of all tokens, and a missing TMPDIR costs one line") {
  const TempFolder folder;
  const auto fingerprint_of = [&](char changed) {
    std::string text(200'000, 'x');
    text[125'000] = changed;  // in none of the windows of TokenShards
    DataConfig data;
    data.path = folder.write("a.jsonl", "{\"text\": \"" + text + "\"}\n");
    data.tokenizer = "byte";
    return open_data(data, nullptr).training->fingerprint();
  };
  CHECK(fingerprint_of('x') == fingerprint_of('x'));
  CHECK(fingerprint_of('x') != fingerprint_of('y'));
  const char* const before = std::getenv("TMPDIR");
  const std::string restored = before == nullptr ? "/tmp" : before;
  ::setenv("TMPDIR", (folder / "missing").c_str(), /*overwrite=*/1);
  CHECK_THROWS_WITH(fingerprint_of('x'),
                    Contains("missing: cannot create a folder for the tokens: ") &&
                        Contains("; set TMPDIR to a folder with room"));
  ::setenv("TMPDIR", restored.c_str(), /*overwrite=*/1);
}

TEST_CASE("tokenize counts rows that it cannot use, and refuses options without effect") {
  const TempFolder folder;
  const std::string rows = folder.write("a.jsonl", "{\"text\": \"ab\"}\n{}\n{\"text\": \"c\"}\n");
  const std::string text = folder.write("a.txt", "ab");
  const Texts common = {"--tokenizer", "byte", "--output", folder / "out", "--overwrite"};
  const auto with = [&](Texts more) {
    more.insert(more.begin(), common.begin(), common.end());
    return tokenize_files(more);
  };
  CHECK_THAT(with({"--input", rows}).err,
             Contains("a.jsonl:2: has no text") &&
                 Contains("; set --text_column to one of them; correct the row, or set "
                          "--on_bad_sample skip"));
  const auto skipped = with({"--on_bad_sample", "skip", "--input", rows});
  CHECK(skipped.exit == 0);
  CHECK_THAT(skipped.err, Contains("1 unusable row left out; the first: ") && Contains(":2: "));
  CHECK_THAT(with({"--text_column", "x", "--input", text}).err,
             Contains("--text_column: has no effect, as no input has rows"));
}

TEST_CASE("a corpus of 100 MB in rows is opened and tokenized in constant memory") {
  const TempFolder folder;
  DataConfig data;
  data.path = write_large(folder);
  data.tokenizer = "byte";
  data.text_column = "story";
  const int64_t before = peak_memory();
  CHECK(open_data(data, nullptr).training->size() == 100'000 * 1001);
  constexpr int64_t kMegabytes = 1'000'000;
  CHECK(peak_memory() - before < 40 * kMegabytes);
  const auto done = tokenize_files({"--tokenizer", "byte", "--text_column", "story", "--threads",
                                    "2", "--output", folder / "out", "--input", data.path});
  REQUIRE(done.exit == 0);
  ::rusage children = {};
  ::getrusage(RUSAGE_CHILDREN, &children);
  CHECK(int64_t{children.ru_maxrss} * 1024 < 120 * kMegabytes);
}

}  // namespace ddp::test
