// `trainer tokenize`, as it is used.
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/child_program.h"
#include "tests/support/temp_folder.h"
#include "trainer/data/tokens/token_shards.h"
#include "trainer/tokenizer/bpe/bpe_tokenizer.h"
#include "trainer/tokenizer/tokenizer_folder.h"

namespace ddp::test {

using namespace ddp::train;

namespace {

std::string corpus() {
  std::ifstream file(DDP_SOURCE_DIR "/data/sample_corpus.txt", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Finished tokenize(std::vector<std::string> options) {
  std::vector<std::string> argv = {DDP_TOKENIZE, "tokenize"};
  argv.insert(argv.end(), options.begin(), options.end());
  ChildOptions child;
  child.argv = std::move(argv);
  return run_to_end(child);
}

/// Files that come into being in a folder.
class NewFiles {
 public:
  explicit NewFiles(const std::string& folder) : fd_(::inotify_init1(IN_CLOEXEC)) {
    REQUIRE(::inotify_add_watch(fd_, folder.c_str(), IN_CREATE) >= 0);
  }
  ~NewFiles() { ::close(fd_); }
  NewFiles(const NewFiles&) = delete;
  NewFiles& operator=(const NewFiles&) = delete;

  /// The name of the next one.
  std::string next() const {
    pollfd waiting = {fd_, POLLIN, 0};
    REQUIRE(::poll(&waiting, 1, static_cast<int>(ChildProgram::kBound.count())) == 1);
    alignas(inotify_event) char bytes[4096];
    REQUIRE(::read(fd_, bytes, sizeof bytes) > 0);
    return reinterpret_cast<const inotify_event*>(bytes)->name;
  }

 private:
  int fd_;
};

std::vector<int32_t> tokens_of(const std::string& folder) {
  const auto tokenizer = load_tokenizer(folder);
  const TokenShards shards(find_shards(folder),
                           {tokenizer->size(), tokenizer_fingerprint(*tokenizer)});
  std::vector<int64_t> wide(static_cast<std::size_t>(shards.size()));
  shards.copy(0, wide);
  return {wide.begin(), wide.end()};
}

}  // namespace

TEST_CASE("the tokens of a large file are those of its text as a whole") {
  const TempFolder folder;
  std::string text;
  while (text.size() < 5'000'000) text += corpus() + "<|endoftext|>\n\n \xf0\x9f\x98\x80\xff ";
  const std::string file = folder.write("text.txt", text);
  const auto done =
      tokenize({"--tokenizer", "bpe", "--train", "--vocab_size", "800", "--threads", "3",
                "--shard_tokens", "500000", "--input", file, "--output", folder / "out"});
  INFO(done.err);
  REQUIRE(done.exit == 0);
  CHECK_THAT(done.out, Catch::Contains("bpe vocabulary of 800"));
  CHECK(tokens_of(folder / "out") == load_tokenizer(folder / "out")->encode(text));
}

TEST_CASE("a byte order mark in front of a file is no token") {
  const TempFolder folder;
  const std::string a = folder.write("a.txt",
                                     "\xEF\xBB\xBF"
                                     "ab");
  const std::string b = folder.write("b.txt", "\xEF\xBB\xBF");
  const std::string c = folder.write("c.txt", "c\xEF\xBB\xBF");
  REQUIRE(tokenize({"--tokenizer", "byte", "--output", folder / "out", "--input", a, b, c}).exit ==
          0);
  CHECK(tokens_of(folder / "out") == std::vector<int32_t>{'a', 'b', 'c', 0xEF, 0xBB, 0xBF});
}

TEST_CASE("files follow each other, with the end-of-text token where it is asked for") {
  const TempFolder folder;
  const std::string a = folder.write("a.txt", "ab");
  const std::string b = folder.write("b.txt", "c");
  const bool separated = GENERATE(false, true);
  std::vector<std::string> options = {"--tokenizer", "byte", "--output", folder / "out",
                                      "--input",     a,      b};
  if (separated) options.insert(options.begin(), "--append_end_of_text");
  REQUIRE(tokenize(options).exit == 0);
  const std::vector<int32_t> expected = separated ? std::vector<int32_t>{'a', 'b', 256, 'c', 256}
                                                  : std::vector<int32_t>{'a', 'b', 'c'};
  CHECK(tokens_of(folder / "out") == expected);
}

TEST_CASE("a trained tokenizer encodes other texts from its folder") {
  const TempFolder folder;
  const std::string a = folder.write("a.txt", corpus());
  const std::string b = folder.write("b.txt", "To be, or not");
  REQUIRE(tokenize({"--tokenizer", "char", "--input", a, "--output", folder / "one"}).exit == 0);
  REQUIRE(
      tokenize({"--tokenizer", folder / "one", "--input", b, "--output", folder / "two"}).exit ==
      0);
  CHECK(load_tokenizer(folder / "one")->decode(tokens_of(folder / "two")) == "To be, or not");
  CHECK(load_tokenizer(folder / "one")->decode(tokens_of(folder / "one")) == corpus());
}

TEST_CASE("mistakes of tokenize are one line and exit code 2") {
  const TempFolder folder;
  const std::string text = folder.write("a.txt", "abc");
  const std::string strange = folder.write("b.txt", "ab\xff");
  const std::string out = folder / "out";
  const std::string taken = folder.write("taken/tokens_000000.bin", "ab");
  const struct {
    std::vector<std::string> options;
    std::string says;
  } cases[] = {
      {{}, "--tokenizer: is required"},
      {{"--tokenizer", "byte", "--input", text}, "--output: is required"},
      {{"--tokenizer", "bpe", "--input", text, "--output", out}, "--train --vocab_size N"},
      {{"--tokenizer", "bpe", "--train", "--vocab_size", "12", "--input", text, "--output", out},
       "an integer >= 257"},
      {{"--tokenizer", "byte", "--train", "--input", text, "--output", out}, "is not trained"},
      {{"--tokenizer", "byte", "--vocab_size", "300", "--input", text, "--output", out},
       "--vocab_size: belongs to"},
      {{"--tokenizer", "byte", "--input", text, "--input", text, "--output", out}, "given twice"},
      {{"--tokenizer", "byte", "--input", folder / "none", "--output", out}, "cannot read"},
      {{"--tokenizer", folder / "none", "--input", text, "--output", out}, "no such folder"},
      {{"--tokenizer", "char", "--input", strange, "--output", out}, "not valid UTF-8 at byte 2"},
      {{"--tokenizer", "char", "--append_end_of_text", "--input", text, "--output", out},
       "has no end-of-text token"},
      {{"--tokenizer", "byte", "--input", text, "--output", folder / "taken"}, "already exists"},
      {{"--tokenizer", "byte", "--inptu", text, "--output", out}, "did you mean '--input'"},
  };
  for (const auto& bad : cases) {
    const auto done = tokenize(bad.options);
    INFO(done.err);
    CHECK(done.exit == 2);
    CHECK_THAT(done.err, Catch::Contains(bad.says));
    CHECK(lines_of(done.err).size() == 1);
  }
  CHECK(std::filesystem::exists(taken));
}

TEST_CASE("a folder's tokenizer of another kind is refused in one line") {
  const TempFolder folder;
  const std::string text = folder.write("a.txt", corpus());
  REQUIRE(tokenize({"--tokenizer", "bpe", "--train", "--vocab_size", "300", "--input", text,
                    "--output", folder / "bpe"})
              .exit == 0);
  std::ifstream file(folder / "bpe/tokenizer.json", std::ios::binary);
  std::string json{std::istreambuf_iterator<char>(file), {}};
  const std::string gpt2 = R"("pre_tokenizer":{"type":"ByteLevel",)";
  const auto at = json.find(gpt2);
  REQUIRE(at != std::string::npos);
  const auto end = json.find('}', at) + 1;
  json.replace(at, end - at,
               R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split"},)"
               R"({"type":"ByteLevel"}]})");
  folder.write("llama3/tokenizer.json", json);
  const auto done = tokenize({"--tokenizer", folder / "llama3", "--input", text, "--output",
                              folder / "out", "--threads", "2"});
  INFO(done.err);
  CHECK(done.exit == 2);
  CHECK_THAT(done.err, Catch::Contains("tokenizer.json: pre_tokenizer.pattern is"));
  CHECK(lines_of(done.err).size() == 1);
}

TEST_CASE("overwriting leaves no file of the earlier run") {
  const TempFolder folder;
  const std::string text = folder.write("a.txt", "abcdef");
  const auto run = [&](const std::string& size) {
    return tokenize({"--tokenizer", "byte", "--overwrite", "--shard_tokens", size, "--input", text,
                     "--output", folder / "out"});
  };
  REQUIRE(run("2").exit == 0);
  REQUIRE(run("4").exit == 0);
  CHECK(find_shards(folder / "out").size() == 2);
  CHECK(tokens_of(folder / "out").size() == 6);
}

TEST_CASE(
    "a signal ends tokenize without a temporary file, and what a kill leaves goes next time") {
  const TempFolder folder;
  const std::string out = folder / "out";
  std::filesystem::create_directory(out);
  const std::string endless = folder.write("endless.txt", "");
  std::filesystem::resize_file(endless, std::uintmax_t{1} << 34U);  // a hole: no place on the disk
  const NewFiles created(out);
  ChildOptions options;
  options.argv = {DDP_TOKENIZE, "tokenize", "--tokenizer", "byte", "--threads",      "1",
                  "--input",    endless,    "--output",    out,    "--shard_tokens", "1000000000"};
  ChildProgram child(options);
  CHECK_THAT(created.next(), Catch::StartsWith("tokens_000000.bin.tmp."));
  child.signal(SIGTERM);
  child.wait_all_gone();
  CHECK(child.wait_exit() == 128 + SIGTERM);
  CHECK_THAT(child.err(), Catch::Contains("is not complete"));
  CHECK(std::filesystem::is_empty(out));

  std::ofstream(out + "/tokens_000003.bin.tmp.99") << "half";
  std::ofstream(out + "/notes.tmp.txt") << "the user's";
  REQUIRE(tokenize({"--tokenizer", "byte", "--input", folder.write("a.txt", "ab"), "--output", out})
              .exit == 0);
  CHECK_FALSE(std::filesystem::exists(out + "/tokens_000003.bin.tmp.99"));
  CHECK(std::filesystem::exists(out + "/notes.tmp.txt"));
}

}  // namespace ddp::test
