// Wordpieces where no peer is needed: what is refused, where a text may be cut, what is written.
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/child_program.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/user_error.h"
#include "trainer/tokenizer/tokenizer_folder.h"
#include "trainer/tokenizer/wordpiece/wordpiece_file.h"
#include "trainer/tokenizer/wordpiece/wordpiece_tokenizer.h"
#include "trainer/tokenizer/wordpiece/wordpiece_trainer.h"

namespace ddp::test {

using namespace ddp::train;

namespace {

constexpr const char* kFewTokens =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\nthe\n,\n";

WordpieceTokenizer few_tokens() {
  return WordpieceTokenizer(parse_vocab_txt(kFewTokens, "vocab.txt"));
}

std::string problem_of(const std::string& vocabulary) {
  const TempFolder folder;
  return user_error_of([&] { load_tokenizer(folder.write("vocab.txt", vocabulary)); });
}

WordCounts counts_of(const std::string& text) {
  WordCounts words;
  for_each_bert_word(text, BertWordOptions{}, [&](std::string_view word) { words.add_word(word); });
  return words;
}

}  // namespace

TEST_CASE("words are cut into the longest pieces, or are unknown as a whole") {
  const auto tokenizer = few_tokens();
  CHECK(tokenizer.encode("Unaffable, the\tunfit") == std::vector<int32_t>{5, 6, 7, 9, 8, 1});
  CHECK(tokenizer.encode("\u00dcn[MASK]the") == std::vector<int32_t>{5, 4, 8});
  CHECK(tokenizer.encode("").empty());
  CHECK(tokenizer.decode(std::vector<int32_t>{5, 6, 7, 9, 8}) == "unaffable , the");
  CHECK(tokenizer.token_of("[MASK]") == 4);
  CHECK(!tokenizer.token_of("[mask]"));
}

TEST_CASE("a text may be cut where its safe prefix ends") {
  const auto tokenizer = few_tokens();
  const std::string text = "the unaffable [MASK], the un\nthe [SEP] unaffable, the the the the";
  const std::size_t cut = tokenizer.safe_prefix(text);
  REQUIRE(cut > 0);
  auto tokens = tokenizer.encode(std::string_view(text).substr(0, cut));
  const auto rest = tokenizer.encode(std::string_view(text).substr(cut));
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  CHECK(tokens == tokenizer.encode(text));
}

TEST_CASE("a state makes the tokenizer again, special tokens and all") {
  const auto tokenizer = few_tokens();
  const auto again = tokenizer_from_state(tokenizer.state());
  CHECK(again->kind() == "wordpiece");
  CHECK(again->state() == tokenizer.state());
  CHECK(again->encode("the [MASK]") == tokenizer.encode("the [MASK]"));
}

TEST_CASE("a vocab.txt that is no vocabulary is refused by line") {
  CHECK_THAT(problem_of("[UNK]\nthe\n\nun\n"), Catch::Contains("vocab.txt: line 3 is empty"));
  CHECK_THAT(problem_of("[UNK]\nthe\nthe\n"), Catch::Contains("line 3 repeats 'the'"));
  CHECK_THAT(problem_of("the\nun\n"), Catch::Contains("vocab.txt: the vocabulary has no '[UNK]'"));
  CHECK_THAT(problem_of("[UNK]\n\xff\n"), Catch::Contains("is not valid UTF-8"));
}

TEST_CASE("a tokenizer.json of wordpieces with another normalizer is refused by name") {
  std::string json = few_tokens().state();
  const std::string name = "BertNormalizer";
  json.replace(json.find(name), name.size(), "NFKC");
  CHECK_THROWS_WITH(parse_tokenizer(json, "there.json"),
                    Catch::Contains("there.json: its normalizer is 'NFKC'"));
}

TEST_CASE("text that is not UTF-8 is refused where it is not") {
  CHECK_THROWS_WITH(few_tokens().encode("the \xff"), Catch::Contains("not valid UTF-8 at byte 4"));
}

TEST_CASE("a trained vocabulary begins with the special tokens and the characters") {
  const auto spec = train_wordpiece(counts_of("abab abab ba ba ba"), 100);
  const std::vector<std::string> begin = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
                                          "a",     "b",     "##a",   "##b",   "ba"};
  REQUIRE(spec.vocabulary.size() > begin.size());
  CHECK(std::vector<std::string>(spec.vocabulary.begin(), spec.vocabulary.begin() + 10) == begin);
  CHECK(spec.added.size() == 5);
  CHECK_THROWS_WITH(train_wordpiece(counts_of("abc"), 8), Catch::Contains("--vocab_size: 8"));
}

TEST_CASE("a WordPiece vocabulary may be smaller than the 256 bytes of a BPE") {
  const TempFolder folder;
  ChildOptions child;
  child.argv = {DDP_TOKENIZE, "tokenize",    "--tokenizer",
                "wordpiece",  "--train",     "--vocab_size",
                "20",         "--input",     folder.write("text.txt", "abab baba abba ba ab\n"),
                "--output",   folder / "out"};
  const auto done = run_to_end(child);
  INFO(done.err);
  CHECK(done.exit == 0);
  CHECK(load_tokenizer(folder / "out")->size() <= 20);
}

TEST_CASE("trainer tokenize trains wordpieces, whichever way it is written") {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 300; ++i) text += "The unaffable old oak, number " + std::to_string(i) + "\n";
  const std::string file = folder.write("text.txt", text);
  const auto train = [&](std::vector<std::string> words, const std::string& output) {
    ChildOptions child;
    child.argv = {DDP_TOKENIZE, "tokenize", "--vocab_size", "300",
                  "--input",    file,       "--output",     folder / output};
    child.argv.insert(child.argv.end(), words.begin(), words.end());
    const auto done = run_to_end(child);
    INFO(done.err);
    REQUIRE(done.exit == 0);
    CHECK_THAT(done.out, Catch::Contains("wordpiece vocabulary of"));
    return load_tokenizer(folder / output)->state();
  };
  CHECK(train({"--tokenizer", "wordpiece", "--train"}, "a") ==
        train({"--train", "wordpiece"}, "b"));
}

}  // namespace ddp::test
