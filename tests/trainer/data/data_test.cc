#include "tests/support/catch.h"

#include "tests/trainer/test_model.h"
#include "trainer/data/data_loader.h"
#include "trainer/data/text/text_dataset.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/utf8.h"
#include "trainer/tokenizer/char_tokenizer.h"

namespace ddp::train {

using test::TempDir;

TEST_CASE("the vocabulary is the sorted set of characters, and decoding inverts encoding") {
  const std::string text =
      "b\xC3\xA4"
      "a\nb\xE2\x82\xAC\xF0\x9F\x98\x80";
  const auto vocabulary = CharTokenizer::from_text(text);
  CHECK(vocabulary.characters() ==
        std::vector<std::string>{"\n", "a", "b", "\xC3\xA4", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"});
  CHECK(vocabulary.decode(vocabulary.encode(text)) == text);
  CHECK(vocabulary.encode(text).size() == 7);
}

TEST_CASE("text that is not UTF-8 is refused with the position") {
  for (const std::string bad : {"ab\xFF", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC3"}) {
    CHECK_THROWS_AS(CharTokenizer::from_text(bad), UserError);
  }
  CHECK_THROWS_WITH(CharTokenizer::from_text("ab\xFF"), Catch::Contains("byte 2"));
}

TEST_CASE("a character outside the vocabulary is named") {
  const auto vocabulary = CharTokenizer::from_text("abc");
  CHECK_THROWS_WITH(vocabulary.encode("abz"), Catch::Contains("'z'"));
}

TEST_CASE("a stored vocabulary with a repeated or split character is refused") {
  CHECK_THROWS_AS(CharTokenizer({"a", "a"}), RunError);
  CHECK_THROWS_AS(CharTokenizer(std::vector<std::string>{"ab"}), RunError);
  CHECK_THROWS_AS(CharTokenizer(std::vector<std::string>{""}), RunError);
}

TEST_CASE("truncation counts characters and never cuts one in two") {
  CHECK(truncate_text("abcd", 0.5) == "ab");
  CHECK(truncate_text("\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4", 0.5) == "\xC3\xA4\xC3\xA4");
  CHECK(truncate_text("abcd", 1.0) == "abcd");
}

TEST_CASE("a truncated text still knows how long it was") {
  const TempDir dir;
  DataConfig config;
  config.path = dir.write("text", std::string("\xC3\xA4").append(99, 'b'));
  config.block_size = 8;
  config.truncate = 0.5;
  const TextDataset dataset(config);
  CHECK(dataset.tokens().size() == 50);
  CHECK(dataset.characters_in_file() == 100);
}

TEST_CASE("the text is split by position before windows are cut: no window crosses the border") {
  const TempDir dir;
  DataConfig config;
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i < 90 ? 'a' + i % 20 : 'A' + i % 20);
  config.path = dir.write("text", text);
  config.block_size = 8;
  const TextDataset dataset(config);
  CHECK(dataset.training_range().size() == 90);
  CHECK(dataset.training().size() == 90 - 8);
  CHECK(dataset.evaluation_range().size() == 10);
  CHECK(dataset.evaluation().size() == 2);
  const auto letter = [&](const torch::Tensor& token) {
    return dataset.tokenizer().decode(static_cast<int32_t>(token.item<int64_t>()));
  };
  CHECK(letter(batch_of(dataset.training(), 81, 1)[kTargets][0][7]) == "j");
  const Batch last = batch_of(dataset.evaluation(), 1, 1);
  CHECK(letter(last[kTargets][0][0]) == "T");
  CHECK(torch::equal(last[kInputs][0].slice(0, 1), torch::zeros({7}, torch::kInt64)));
  CHECK(torch::equal(last[kTargets][0].slice(0, 1), torch::full({7}, int64_t{-1}, torch::kInt64)));
}

TEST_CASE("a text shorter than a block is refused with the numbers and the key") {
  const TempDir dir;
  DataConfig config;
  config.path = dir.write("text", std::string(100, 'a'));
  config.block_size = 128;
  CHECK_THROWS_AS(TextDataset(config), UserError);
  CHECK_THROWS_WITH(TextDataset(config), Catch::Contains("data_config.block_size") &&
                                             Catch::Contains("129") &&
                                             Catch::Contains("90 characters"));
}

TEST_CASE("an automatic stride is half a block, and less where an epoch would be short") {
  const TempDir dir;
  DataConfig config;
  config.block_size = 64;
  config.train_split = 1.0;
  config.stride = {};
  const auto stride_for = [&](std::size_t length) {
    config.path = dir.write("text", std::string(length, 'a'));
    return TextDataset(config).training().stride();
  };
  CHECK(stride_for(65) == 1);
  CHECK(stride_for(64 + 512 * 2 - 1) == 1);
  CHECK(stride_for(64 + 512 * 2) == 2);
  CHECK(stride_for(64 + 512 * 32) == 32);
  CHECK(stride_for(100'000) == 32);
  config.block_size = 1;
  CHECK(stride_for(100'000) == 1);
}

/// What the refusal advises, or the whole of it when it advises nothing.
std::string advice_for(int64_t characters, int64_t stride) {
  const TempDir dir;
  DataConfig config;
  config.path = dir.write("text", std::string(static_cast<std::size_t>(characters), 'a'));
  config.block_size = 64;
  config.train_split = 1.0;
  config.stride = {false, static_cast<double>(stride)};
  try {
    const TextDataset dataset(config, nullptr, 16);
  } catch (const UserError& error) {
    const std::string text = error.what();
    return text.substr(text.find("text, or ") == std::string::npos ? 0 : text.find(", or ") + 5);
  }
  return "nothing: it fits";
}

TEST_CASE("a text with too few samples for a batch is refused with sizes that fit") {
  CHECK(advice_for(64 + 16, 1) == "nothing: it fits");
  CHECK(advice_for(64 + 16, 32) == "data_config.stride=1");
  CHECK(advice_for(64 + 15, 1) == "data_config.block_size=32 data_config.stride=1");
  CHECK(advice_for(24, 1) == "data_config.block_size=8 data_config.stride=1");
  CHECK(advice_for(23, 1) ==
        "data_config.block_size=8 data_config.stride=1 trainer_config.batch_size=11");
  CHECK_THAT(advice_for(1, 1), Catch::Contains("1 characters") && Catch::EndsWith("longer text"));
}

TEST_CASE("a byte order mark is left out of each file, and other bytes are found in theirs") {
  const TempDir dir;
  DataConfig config;
  config.path = dir.file("*.txt");
  config.block_size = 2;
  config.train_split = 1.0;
  dir.write("a.txt",
            "\xEF\xBB\xBF"
            "abc");
  const std::string second = dir.write("b.txt",
                                       "\xEF\xBB\xBF"
                                       "dea");
  const TextDataset dataset(config);
  CHECK(dataset.characters_in_file() == 6);
  CHECK(dataset.tokenizer().size() == 5);
  dir.write("b.txt",
            "\xEF\xBB\xBF"
            "d\xFF");
  CHECK_THROWS_WITH(TextDataset(config),
                    Catch::Contains(second + ": is not valid UTF-8 at byte 4; convert it") &&
                        Catch::Contains("data_config.tokenizer=byte"));
  config.tokenizer = "byte";
  CHECK(TextDataset(config).tokens().size() == 5);
}

TEST_CASE("a text in another encoding, or none, is told from what it looks like") {
  CHECK_THAT(not_utf8("Gr\xFC\xDF", 2), Catch::Contains("at byte 2; convert it"));
  CHECK_THAT(not_utf8("\xFF\xFEh", 0, 7), Catch::Contains("at byte 7; it looks like UTF-16"));
  CHECK_THAT(not_utf8(std::string("a\0\xFF", 3), 2), Catch::Contains("binary file"));
  CHECK(first_bad_byte("h\xC3\xA4\xC3") == 3);
  CHECK(first_bad_byte("h\xC3\xA4") == std::string_view::npos);
}

TEST_CASE("a missing, empty or unreadable text is a user's error that names the path") {
  const TempDir dir;
  DataConfig config;
  for (const std::string& path : {dir.file("absent"), dir.write("empty", ""), dir.file(".")}) {
    config.path = path;
    CHECK_THROWS_AS(TextDataset(config), UserError);
    CHECK_THROWS_WITH(TextDataset(config), Catch::Contains(path));
  }
}

}  // namespace ddp::train
