#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/user_error.h"
#include "trainer/tokenizer/bpe/bpe_file.h"
#include "trainer/tokenizer/bpe/bpe_tokenizer.h"
#include "trainer/tokenizer/bpe/bpe_trainer.h"
#include "trainer/tokenizer/byte_tokenizer.h"
#include "trainer/tokenizer/char_tokenizer.h"
#include "trainer/tokenizer/special_tokens.h"
#include "trainer/tokenizer/tokenizer_folder.h"
#include "trainer/tokenizer/word_splitter.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace ddp::test {

using namespace ddp::train;

namespace {

const std::string kText =
    "It's the theory of the thing: they'll think the three thin things through, then 100 times "
    "more.\n\n  The  end \n";

BpeTokenizer trained(int64_t size = 300) {
  WordCounts words;
  words.add_text(kText);
  return BpeTokenizer(train_bpe(words, size));
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = word_end(text, at);
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

std::string random_bytes(std::size_t size, uint32_t seed) {
  std::string bytes;
  const std::string pool = "aaab '\n\t.1\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80\xff\xe2\x80\x83";
  for (std::size_t i = 0; i < size; ++i) {
    seed = seed * 1664525U + 1013904223U;
    bytes.push_back(seed >> 31U != 0 ? pool[(seed >> 8U) % pool.size()]
                                     : static_cast<char>(seed >> 16U));
  }
  return bytes;
}

std::string message_of(const std::string& json) {
  return user_error_of([&] { parse_tokenizer(json, "t.json"); });
}

/// A tokenizer.json with one part replaced.
std::string damaged(const std::string& from, const std::string& to) {
  std::string json = trained().state();
  const auto at = json.find(from);
  REQUIRE(at != std::string::npos);
  return json.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("words are split as GPT-2's regular expression says") {
  using Words = std::vector<std::string>;
  CHECK(words_of("We'll see, it's 10 o'clock") ==
        Words{"We", "'ll", " see", ",", " it", "'s", " 10", " o", "'", "clock"});
  CHECK(words_of("a  b\n\nc \n") == Words{"a", " ", " b", "\n", "\n", "c", " \n"});
  CHECK(words_of("\xc2\xa0\xc2\xa0x") == Words{"\xc2\xa0", "\xc2\xa0", "x"});
  CHECK(words_of("caf\xc3\xa9\xe2\x82\xac") == Words{"caf\xc3\xa9", "\xe2\x82\xac"});
}

TEST_CASE("bytes that are not UTF-8 are signs, one by one") {
  CHECK(words_of("a\xff\xfe b") == std::vector<std::string>{"a", "\xff\xfe", " b"});
  CHECK(words_of("\xe4\xb8") == std::vector<std::string>{"\xe4\xb8"});
}

TEST_CASE("any bytes come back from their tokens") {
  const BpeTokenizer tokenizer = trained();
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const std::string bytes = random_bytes(std::size_t{40} * seed, seed);
    CHECK(tokenizer.decode(tokenizer.encode(bytes)) == bytes);
  }
}

TEST_CASE("the pair of lowest rank is merged first, in short words and long ones alike") {
  BpeSpec spec = trained(257).spec();
  const auto id = [&spec](const std::string& token) {
    return static_cast<int32_t>(std::find(spec.vocabulary.begin(), spec.vocabulary.end(), token) -
                                spec.vocabulary.begin());
  };
  for (const char* token : {"ab", "bc", "abc"}) spec.vocabulary.emplace_back(token);
  spec.merges = {
      {id("b"), id("c"), id("bc")}, {id("a"), id("b"), id("ab")}, {id("a"), id("bc"), id("abc")}};
  const BpeTokenizer tokenizer(spec);
  CHECK(tokenizer.encode("abc") == std::vector<int32_t>{id("abc")});
  CHECK(tokenizer.encode("aba") == std::vector<int32_t>{id("ab"), id("a")});
  std::string run;
  std::vector<int32_t> expected;
  for (int i = 0; i < 5000; ++i) {
    run += "abcab";
    expected.insert(expected.end(), {id("abc"), id("ab")});
  }
  CHECK(tokenizer.encode(run) == expected);
}

TEST_CASE("an added token is one token wherever it stands, the longest of several") {
  BpeSpec spec = trained().spec();
  const auto size = static_cast<int32_t>(spec.vocabulary.size());
  spec.vocabulary.insert(spec.vocabulary.end(), {"<|a|>", "<|a|>b"});
  spec.added.push_back({"<|a|>", size});
  spec.added.push_back({"<|a|>b", size + 1});
  const BpeTokenizer tokenizer(spec);
  CHECK(tokenizer.encode("<|a|><|a|>b<|endoftext|>") == std::vector<int32_t>{size, size + 1, 0});
  CHECK(tokenizer.decode(std::vector<int32_t>{size + 1, 0}) == "<|a|>b<|endoftext|>");
  CHECK(tokenizer.end_of_text() == 0);
}

TEST_CASE("a hundred thousand added tokens are found in a text of them, each the longest") {
  BpeSpec spec = trained().spec();
  std::string text;
  std::vector<int32_t> expected;
  for (int i = 0; i < 100'000; ++i) {
    const auto id = static_cast<int32_t>(spec.vocabulary.size());
    spec.vocabulary.push_back("<" + std::to_string(i));
    spec.added.push_back({.content = spec.vocabulary.back(), .id = id});
    if (i % 9 != 0) continue;
    text += spec.vocabulary.back();
    expected.push_back(id);
  }
  const BpeTokenizer tokenizer(std::move(spec));
  CHECK(tokenizer.encode(text) == expected);
  const std::size_t cut = tokenizer.safe_prefix(text);
  CHECK(cut > 0);
  auto parts = tokenizer.encode(text.substr(0, cut));
  const auto rest = tokenizer.encode(text.substr(cut));
  parts.insert(parts.end(), rest.begin(), rest.end());
  CHECK(parts == expected);
}

TEST_CASE("the eos_token of a folder's files is the end of text, in its state as well") {
  const TempFolder folder;
  folder.write("vocab.json", R"({"a": 0, "<|im_end|>": 1, "</s>": 2, "<|endoftext|>": 3})");
  folder.write("merges.txt", "");
  const auto end = [&] { return load_tokenizer(folder.path())->end_of_text(); };
  const std::string by_name = load_tokenizer(folder.path())->state();
  CHECK(end() == 3);
  folder.write("special_tokens_map.json", R"({"eos_token": "</s>"})");
  CHECK(end() == 2);
  folder.write("tokenizer_config.json", R"({"eos_token": {"content": "<|im_end|>"}})");
  CHECK(end() == 2);
  folder.write("tokenizer_config.json",
               R"({"eos_token": {"content": "<|im_end|>"}, "added_tokens_decoder": {}})");
  const auto tokenizer = load_tokenizer(folder.path());
  CHECK(tokenizer->end_of_text() == 1);
  CHECK(tokenizer->encode("<|im_end|>a") == std::vector<int32_t>{1, 0});
  CHECK(tokenizer_from_state(tokenizer->state())->end_of_text() == 1);
  const std::string bare = without_end_mark(tokenizer->state());
  CHECK(bare.find("end_of_text\":") == std::string::npos);
  CHECK(nlohmann::json::accept(bare));
  CHECK(tokenizer_fingerprint(*tokenizer_from_state(bare)) == tokenizer_fingerprint(*tokenizer));
  const TempFolder whole;
  whole.write("tokenizer.json", tokenizer->state());
  whole.write("tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  CHECK(load_tokenizer(whole.path())->end_of_text() == 3);
  CHECK(load_tokenizer(whole / "tokenizer.json")->end_of_text() == 3);
  folder.write("special_tokens_map.json", R"({"eos_token": "<|endoftext|>"})");
  folder.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  CHECK(load_tokenizer(folder.path())->state() == by_name);
  for (const char* file : {"special_tokens_map.json", "tokenizer_config.json"}) {
    folder.write(file, "{");
    CHECK_THROWS_WITH(end(), Catch::Contains(file) && Catch::Contains("malformed JSON"));
    std::filesystem::remove(folder / file);
    std::filesystem::create_symlink(file, folder / file);  // to itself
    CHECK_THROWS_WITH(end(), Catch::Contains(file) && Catch::Contains("cannot read"));
    std::filesystem::remove(folder / file);
  }
}

TEST_CASE("a text cut where it is safe has the tokens of the whole, whatever follows") {
  BpeSpec spec = trained().spec();
  spec.vocabulary.emplace_back("a '\n");  // an added token that words do not end in
  spec.added.push_back({"a '\n", static_cast<int32_t>(spec.vocabulary.size()) - 1});
  const bool prefix_space = GENERATE(false, true);
  spec.add_prefix_space = prefix_space;
  const BpeTokenizer tokenizer(spec);
  int cuts = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    const std::string text = random_bytes(60, seed);
    const std::size_t cut = tokenizer.safe_prefix(std::string_view(text).substr(0, 40));
    if (cut == 0) continue;
    ++cuts;
    auto parts = tokenizer.encode(text.substr(0, cut));
    const auto rest = tokenizer.encode(text.substr(cut));
    parts.insert(parts.end(), rest.begin(), rest.end());
    CHECK(parts == tokenizer.encode(text));
  }
  CHECK(cuts > 150);
}

TEST_CASE("training takes the most frequent pair, of equals the one of smaller ids") {
  WordCounts words;
  words.add_text("ab ab ab cd cd xy");
  const BpeSpec spec = train_bpe(words, 257 + 4);
  const auto tail = std::vector<std::string>(spec.vocabulary.end() - 4, spec.vocabulary.end());
  // The text does not start with " a", so that "ab" is the most frequent one.
  CHECK(tail == std::vector<std::string>{"ab", "cd",
                                         "\xc4\xa0"
                                         "ab",
                                         "\xc4\xa0"
                                         "cd"});
}

TEST_CASE("a vocabulary smaller than the bytes is refused") {
  CHECK_THROWS_WITH(train_bpe(WordCounts(), 256), Catch::Contains("257"));
}

TEST_CASE("a tokenizer made again from its state gives the same tokens") {
  const BpeTokenizer bpe = trained();
  const CharTokenizer characters = CharTokenizer::from_text(kText);
  const ByteTokenizer bytes;
  for (const Tokenizer* tokenizer :
       {static_cast<const Tokenizer*>(&bpe), static_cast<const Tokenizer*>(&characters),
        static_cast<const Tokenizer*>(&bytes)}) {
    const auto again = tokenizer_from_state(tokenizer->state());
    CHECK(again->kind() == tokenizer->kind());
    CHECK(again->size() == tokenizer->size());
    CHECK(again->encode(kText) == tokenizer->encode(kText));
    CHECK(tokenizer_fingerprint(*again) == tokenizer_fingerprint(*tokenizer));
  }
}

TEST_CASE("the byte tokenizer has an end of text that no text is encoded to") {
  const ByteTokenizer tokenizer;
  CHECK(tokenizer.encode("a\xff") == std::vector<int32_t>{'a', 255});
  CHECK(tokenizer.decode(std::vector<int32_t>{'a', 256, 'b'}) == "ab");
  CHECK(tokenizer.end_of_text() == 256);
}

TEST_CASE("vocab.json with merges.txt is read, comments and line ends of any kind") {
  const TempFolder folder;
  folder.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})");
  folder.write("merges.txt", "#version: 0.2\r\na b\r\n");
  const auto tokenizer = load_tokenizer(folder.path());
  CHECK(tokenizer->encode("ab<|endoftext|>ba") == std::vector<int32_t>{2, 3, 1, 0});
  CHECK_THROWS_WITH(tokenizer->encode("abc"), Catch::Contains("no token for the byte 0x63"));
}

TEST_CASE("byte-level BPE with another pattern than those of published models is refused") {
  const std::string llama3 = damaged(
      R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})",
      R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split"},{"type":"ByteLevel"}]})");
  CHECK_THAT(message_of(llama3), Catch::Contains("t.json: pre_tokenizer.pattern is 'null'; this "
                                                 "trainer reads the patterns of GPT-2, Llama 3"));
}

TEST_CASE("a damaged or foreign tokenizer file is refused in one line that says why") {
  using Catch::Contains;
  CHECK_THAT(message_of("{\"model\": {"),
             Contains("t.json: is incomplete or malformed JSON (at byte 11"));
  CHECK_THAT(message_of("[1]"), Contains("an object is expected"));
  CHECK_THAT(message_of("{}"), Contains("this trainer reads BPE"));
  CHECK_THAT(message_of(std::string(100000, '[')), Contains("nested too deeply"));
  CHECK_THAT(message_of("{\"kind\": \"words\"}"),
             Contains("unsupported kind of tokenizer: 'words'"));
  CHECK_THAT(message_of("{\"kind\": \"char\"}"), Contains("is damaged"));
  CHECK_THAT(message_of(damaged("\"type\":\"BPE\"", "\"type\":\"Unigram\"")),
             Contains("model.type is 'Unigram'"));
  CHECK_THAT(message_of(damaged("\"normalizer\":null", "\"normalizer\":{\"type\":\"NFD\"}")),
             Contains("normalizer is '{\"type\":\"NFD\"}'; this trainer reads none, NFC"));
  CHECK_THAT(message_of(damaged("\"single_word\":false", "\"single_word\":true")),
             Contains("added_tokens.single_word is set for '<|endoftext|>'"));
  CHECK_THAT(message_of(damaged("\"dropout\":null", "\"dropout\":0.1")),
             Contains("model.dropout is set"));
  CHECK_THAT(message_of(damaged("\"!\":1", "\"!\":2")), Contains("two tokens have the id 2"));
  CHECK_THAT(message_of(damaged("\"!\":1", "\"!\":99999")), Contains("has the id"));
  CHECK_THAT(message_of(damaged("\"!\":1", "\"!\":-1")), Contains("has the id"));
  CHECK_THAT(message_of(damaged("\"merges\":[[", "\"merges\":[[\"no\",\"way\"],[")),
             Contains("merge 1 ('no' with 'way'): 'no' is not in the vocabulary"));
  CHECK_THAT(message_of(damaged("\"merges\":[[", "\"merges\":[7,[")), Contains("'merges'"));
}

TEST_CASE("a tokenizer in a pipe, a device or a file that is too large is refused") {
  const TempFolder folder;
  const std::string path = folder / "tokenizer.json";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK_THROWS_WITH(load_tokenizer(folder.path()), Catch::Contains("is a pipe or a device"));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/zero", path);
  CHECK_THROWS_WITH(load_tokenizer(folder.path()), Catch::Contains("is a pipe or a device"));
  std::filesystem::remove(path);
  folder.write("tokenizer.json", "{}");
  std::filesystem::resize_file(path, 300'000'000);
  CHECK_THROWS_WITH(load_tokenizer(folder.path()), Catch::Contains("has 300 MB, more than"));
}

TEST_CASE("a folder without a tokenizer says what it lacks") {
  const TempFolder folder;
  CHECK_THROWS_WITH(load_tokenizer(folder.path()), Catch::Contains("holds no tokenizer.json"));
  CHECK_THROWS_WITH(load_tokenizer(folder / "none"), Catch::Contains("no such folder"));
  folder.write("vocab.json", "{\"a\": 0}");
  CHECK_THROWS_WITH(load_tokenizer(folder.path()), Catch::Contains("cannot read"));
  folder.write("merges.txt", "a b c\n");
  CHECK_THROWS_WITH(load_tokenizer(folder.path()),
                    Catch::Contains("merges.txt: merge 1 ('a b c') is not two tokens"));
  std::filesystem::create_symlink("tokenizer.json", folder / "tokenizer.json");
  CHECK_THROWS_WITH(load_tokenizer(folder.path()),
                    Catch::Contains("tokenizer.json: cannot be read: Too many levels"));
}

}  // namespace ddp::test
