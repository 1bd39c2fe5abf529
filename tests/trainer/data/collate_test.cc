// What the sources of the tasks make of samples: rows, padding, masks, and the count of targets.
#include <fstream>
#include <numeric>

#include "tests/support/catch.h"

#include "tests/trainer/test_model.h"
#include "trainer/data/data_loader.h"
#include "trainer/data/images/bad_samples.h"
#include "trainer/data/images/image_samples.h"
#include "trainer/data/text/masked_lines.h"
#include "trainer/data/text/text_samples.h"
#include "trainer/data/tokens/memory_tokens.h"
#include "trainer/data/tokens/token_windows.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/temporary_folder.h"
#include "trainer/tokenizer/char_tokenizer.h"

namespace ddp::train {
namespace {

constexpr int32_t kTestPad = 100, kTestFirst = 101, kTestLast = 102, kTestMask = 103;

/// Letters a to z are tokens 1 to 26, after the newline.
CharTokenizer letter_tokenizer() {
  return CharTokenizer::from_text("abcdefghijklmnopqrstuvwxyz\n");
}

/// Lines of letters with these lengths.
TextLines letter_lines(const std::vector<int>& lengths) {
  std::vector<std::string> lines;
  for (const int length : lengths) {
    std::string& line = lines.emplace_back();
    for (int i = 0; i < length; ++i) line += static_cast<char>('a' + (i * i + length + i) % 26);
  }
  return {letter_tokenizer(), lines, 1000};
}

MaskingTokens special_tokens() {
  MaskingTokens tokens{{kTestPad, kTestFirst, kTestLast}, kTestMask, std::vector<int32_t>(26)};
  std::iota(tokens.ordinary.begin(), tokens.ordinary.end(), 1);
  return tokens;
}

std::vector<int64_t> whole_numbers(const torch::Tensor& tensor) {
  const auto flat = tensor.to(torch::kInt64).contiguous().view({-1});
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

using Numbers = std::vector<int64_t>;

/// [CLS] line [SEP] and padding.
Numbers expected_row(std::span<const int32_t> line, std::size_t columns) {
  Numbers row{kTestFirst};
  row.insert(row.end(), line.begin(), line.end());
  row.push_back(kTestLast);
  row.resize(columns, kTestPad);
  return row;
}

/// The hidden tokens of row `i`: columns and targets.
std::pair<Numbers, Numbers> hidden_in_row(const Batch& batch, int64_t i) {
  const int64_t columns = batch[kInputs].size(1);
  const Numbers positions = whole_numbers(batch[kTargetPositions]);
  const Numbers targets = whole_numbers(batch[kTargets]);
  std::pair<Numbers, Numbers> hidden;
  for (std::size_t m = 0; m < positions.size(); ++m) {
    if (positions[m] / columns != i) continue;
    hidden.first.push_back(positions[m] % columns);
    hidden.second.push_back(targets[m]);
  }
  return hidden;
}

/// Three gray images of 2 x 2, the second one broken.
class ThreeImages : public ImageSet {
 public:
  ThreeImages() {
    labels_ = {1, 0, 1};
    label_names_ = {"a", "b"};
  }
  int64_t size() const override { return 3; }
  Image image(int64_t index, int64_t /*channels*/) const override {
    if (index == 1) throw BrokenImage("torn");
    return {2, 2, 1, std::vector<uint8_t>(4, static_cast<uint8_t>(100 + index))};
  }
  std::string name(int64_t index) const override { return std::to_string(index); }
  bool may_be_broken() const override { return true; }
};

}  // namespace

TEST_CASE("a tensor that a batch lacks is named, and so are those that it has") {
  const Batch batch{{{kInputs, torch::zeros({2})}, {kTargets, torch::zeros({2})}}, 2};
  CHECK_THROWS_WITH(batch["document_ids"],
                    Catch::Contains("no tensor 'document_ids'; it has inputs, targets"));
}

TEST_CASE("all tensors of a batch go to the device, and the count stays") {
  const Batch batch{{{kInputs, torch::zeros({2})}, {kAttentionMask, torch::ones({2})}}, 7};
  const Batch moved = batch.to(torch::kMeta);
  CHECK(moved[kInputs].is_meta());
  CHECK(moved[kAttentionMask].is_meta());
  CHECK(moved.target_count == 7);
}

TEST_CASE("every position of a training window is a target, the end of the last evaluation none") {
  const MemoryTokens text({0, 1, 2, 3, 4, 5, 6}, "text");
  const TokenWindows training(text, {0, 7}, {3}, 2);
  const Numbers two = {1, 0};
  const Batch batch = training.collate({two});
  CHECK(whole_numbers(batch[kInputs]) == Numbers{2, 3, 4, 0, 1, 2});
  CHECK(whole_numbers(batch[kTargets]) == Numbers{3, 4, 5, 1, 2, 3});
  CHECK(batch.target_count == training.targets().per_sample * 2);
  CHECK(training.targets().always);

  const TokenWindows evaluation(text, {0, 6}, {3}, std::nullopt);
  const Batch last = batch_of(evaluation, 1, 1);
  CHECK(whole_numbers(last[kInputs]) == Numbers{3, 4, 0});
  CHECK(whole_numbers(last[kTargets]) == Numbers{4, 5, -1});
  CHECK(last.target_count == 2);
}

TEST_CASE("lines of documents, whose tokens are in a file, are those of a text") {
  const TemporaryFolder folder("a test");
  const std::string path = folder.path() + "/rows.jsonl";
  std::ofstream(path) << "{\"text\": \"abcdef\"}\n{\"text\": \"x\"}\n{\"text\": \"yz\"}\n";
  LeftOut left_out(OnBadSample::kStop);
  Documents documents({path}, {"text", ""}, left_out);
  const TextLines read(letter_tokenizer(), documents, 2, 4);
  const TextLines lines(letter_tokenizer(), "abcdef\nx\nyz\n", 2, 4);
  CHECK(read.fingerprint() == lines.fingerprint());
  CHECK(read[1] == std::vector<int32_t>{25, 26});
  CHECK(read.size() == 2);
  CHECK(read.longest() == 4);
}

TEST_CASE("a batch of labelled texts is as wide as its longest text") {
  const TextLines lines = letter_lines({3, 9, 0, 5});
  const TextTargets labels = {{1, 0, 2, 1}};
  const TextSamples samples(lines, labels, {3, 2, 0, 1}, {special_tokens()});
  const Numbers chosen = {0, 2, 1};
  const Batch batch = samples.collate({chosen});
  Numbers rows;
  for (const int64_t line : {3, 0, 2}) {
    const Numbers row = expected_row(lines[line], 7);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  CHECK(batch[kInputs].sizes() == torch::IntArrayRef({3, 7}));
  CHECK(whole_numbers(batch[kInputs]) == rows);
  CHECK(torch::equal(batch[kAttentionMask], batch[kInputs].ne(kTestPad)));
  CHECK(whole_numbers(batch[kTargets]) == Numbers{1, 1, 2});
  CHECK(batch.target_count == 3);
}

TEST_CASE("a pair is cut in its longer text, has separators, and types where the model has them") {
  const std::vector<std::string> firsts = {"abcdefgh", "ab", "abcdef", "abcd"};
  const std::vector<std::string> seconds = {"xyz", "uvwxyz", "uvwxyz", "xyz"};
  BertTokens tokens = special_tokens();
  tokens.typed_pairs = true;
  const TextLines lines(letter_tokenizer(), firsts, seconds, between_texts(tokens), 8);
  const auto text = [](const std::string& letters) {
    Numbers numbers;
    for (const char c : letters) numbers.push_back(c == '|' ? kTestLast : 1 + c - 'a');
    return numbers;
  };
  const char* const expected[] = {"abcd|xyz", "ab|uvwxy", "abc|uvwx", "abcd|xyz"};
  for (int64_t i = 0; i < 4; ++i) {
    const auto line = lines[i];
    CHECK(Numbers(line.begin(), line.end()) == text(expected[i]));
  }
  CHECK(lines.lengths().longest() == 13);
  const TextTargets targets = {{}, {0.5F, 1, 2, 3}, 1};
  const TextSamples samples(lines, targets, {1, 3}, {tokens});
  const Numbers chosen = {1, 0};
  const Batch batch = samples.collate({chosen});
  CHECK(whole_numbers(batch[kTokenTypes]) ==
        Numbers{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1});
  CHECK(torch::equal(batch[kTargets], torch::tensor({{3.0F}, {1.0F}})));
  tokens.typed_pairs = false;
  CHECK(!TextSamples(lines, targets, {1}, {tokens})
             .collate({Numbers{0}})
             .find(kTokenTypes)
             .defined());
}

TEST_CASE("a batch of masked lines names each hidden token and its place, and hides no other") {
  const TextLines lines = letter_lines({30, 0, 12, 1, 20});
  const MaskingTokens tokens = special_tokens();
  const MaskedLines samples(lines, 0, lines.size(), tokens, {40, 0.2, 7, true});
  const Numbers chosen = {2, 1, 4, 3};
  const Batch batch = samples.collate({chosen, /*epoch=*/5});
  const int64_t columns = batch[kInputs].size(1);
  CHECK(columns == 22);
  int64_t count = 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const auto line = lines[chosen[i]];
    const auto [hidden, targets] = hidden_in_row(batch, static_cast<int64_t>(i));
    CHECK(std::ssize(hidden) == masked_count(std::ssize(line), 0.2));
    CHECK(std::is_sorted(hidden.begin(), hidden.end()));
    const Numbers original = expected_row(line, static_cast<std::size_t>(columns));
    Numbers row = whole_numbers(batch[kInputs][static_cast<int64_t>(i)]);
    for (std::size_t m = 0; m < hidden.size(); ++m) {
      const auto column = static_cast<std::size_t>(hidden[m]);
      CHECK(targets[m] == original[column]);
      row[column] = targets[m];
    }
    CHECK(row == original);
    count += std::ssize(hidden);
  }
  CHECK(torch::equal(batch[kAttentionMask], batch[kInputs].ne(kTestPad)));
  CHECK(batch.target_count == count);
  CHECK(batch[kTargets].numel() == count);
  CHECK(!samples.targets().always);
}

TEST_CASE("what is hidden depends on seed, epoch and sample, not on the others of the batch") {
  const TextLines lines = letter_lines({30, 25, 12});
  const MaskingTokens tokens = special_tokens();
  const auto hidden = [&](uint64_t seed, int64_t epoch, const Numbers& chosen, int64_t row,
                          bool anew = true) {
    const MaskedLines samples(lines, 0, lines.size(), tokens, {40, 0.2, seed, anew});
    return hidden_in_row(samples.collate({chosen, epoch}), row);
  };
  const auto expected = hidden(7, 5, {1}, 0);
  CHECK(hidden(7, 5, {0, 2, 1}, 2) == expected);
  CHECK(hidden(7, 6, {1}, 0) != expected);
  CHECK(hidden(8, 5, {1}, 0) != expected);
  CHECK(hidden(7, 5, {1}, 0, false) == hidden(7, 0, {1}, 0));
}

TEST_CASE("a broken image is a row of zeros that counts for nothing") {
  const ThreeImages images;
  BadSamples bad(OnBadSample::kSkip);
  ImageConfig config;
  config.pixel_mean = 0.0;
  config.pixel_std = 1.0;
  const ImageSamples samples(images, {0, 1, 2}, {{1, 2, 2}, config}, bad);
  const Batch batch = batch_of(samples, 0, 3);
  CHECK(batch[kInputs].sizes() == torch::IntArrayRef({3, 1, 2, 2}));
  CHECK(batch[kInputs][0].sub(100.0 / 255.0).abs().lt(1e-6).all().item<bool>());
  CHECK(batch[kInputs][1].eq(0).all().item<bool>());
  CHECK(whole_numbers(batch[kTargets]) == Numbers{1, kLeftOut, 1});
  CHECK(batch.target_count == 2);
  CHECK(!samples.targets().always);
  CHECK(bad.take_lines().size() == 1);

  BadSamples strict(OnBadSample::kStop);
  const ImageSamples stops(images, {0, 1, 2}, {{1, 2, 2}, config}, strict);
  CHECK(stops.targets().always);
  CHECK_THROWS_AS(batch_of(stops, 0, 3), FinalError);
}

}  // namespace ddp::train
