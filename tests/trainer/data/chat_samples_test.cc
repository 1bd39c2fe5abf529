// Conversations in rows: which go together, what is a target, and that they do not see each other.
#include <torch/torch.h>  // first: it has a CHECK of its own

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "tests/support/catch.h"

#include "trainer/data/chat/chat_samples.h"
#include "trainer/data/data_loader.h"
#include "trainer/data/mixed_samples.h"

namespace ddp::train {
namespace {

/// Tokens from `first` on, of which the last `targets` are targets.
EncodedChat chat_of(int32_t first, std::size_t length, std::size_t targets) {
  EncodedChat chat{std::vector<int32_t>(length), std::vector<bool>(length)};
  std::iota(chat.tokens.begin(), chat.tokens.end(), first);
  std::fill(chat.is_target.end() - static_cast<std::ptrdiff_t>(targets), chat.is_target.end(),
            true);
  return chat;
}

std::vector<int64_t> row_numbers(const torch::Tensor& row) {
  const auto* first = row.contiguous().const_data_ptr<int64_t>();
  return {first, first + row.numel()};
}

}  // namespace

TEST_CASE("every conversation is in one row, and rows are at least half full but for one") {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<int64_t> sizes(static_cast<std::size_t>(random() % 40));
    for (int64_t& size : sizes) size = 1 + static_cast<int64_t>(random() % 16);
    const auto rows = pack(sizes, 16);
    std::vector<std::size_t> seen;
    int less_than_half = 0;
    for (const auto& row : rows) {
      int64_t sum = 0;
      for (const std::size_t item : row) sum += sizes[item];
      CHECK(sum <= 16);
      if (sum < 8) ++less_than_half;
      seen.insert(seen.end(), row.begin(), row.end());
    }
    std::sort(seen.begin(), seen.end());
    std::vector<std::size_t> all(sizes.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    CHECK(seen == all);
    CHECK(less_than_half <= 1);
    CHECK(rows == pack(sizes, 16));
  }
}

TEST_CASE("a row holds conversations with positions of their own and padding behind them") {
  const ChatSamples samples({chat_of(10, 4, 2), chat_of(20, 3, 1)}, 8);
  REQUIRE(samples.size() == 1);
  const Batch batch = batch_of(samples, 0, 1);
  CHECK(row_numbers(batch[kInputs][0]) == std::vector<int64_t>{10, 11, 12, 20, 21, 0, 0, 0});
  CHECK(row_numbers(batch[kTargets][0]) == std::vector<int64_t>{-1, 12, 13, -1, 22, -1, -1, -1});
  CHECK(row_numbers(batch[kPositions][0]) == std::vector<int64_t>{0, 1, 2, 0, 1, 0, 1, 2});
  CHECK(batch.target_count == 3);
  CHECK(samples.filled() == 5.0 / 8.0);
  CHECK(samples.first_prompt() == std::vector<int32_t>{10, 11});
}

TEST_CASE("what lies beyond a row is cut, and a conversation without a target is left out") {
  // Nine tokens fill a row: the last is predicted only. A first token is predicted from nothing.
  const ChatSamples samples(
      {chat_of(10, 12, 6), chat_of(30, 12, 3), chat_of(50, 1, 1), chat_of(60, 9, 9)}, 8);
  const ChatCounts& counts = samples.counts();
  CHECK(counts.conversations == 4);
  CHECK(counts.truncated == 2);
  CHECK(counts.cut_tokens == 6);
  CHECK(counts.without_target == 2);
  CHECK(counts.targets == 3 + 8);
  CHECK(samples.size() == 2);
  CHECK(row_numbers(batch_of(samples, 0, 1)[kTargets][0]) ==
        std::vector<int64_t>{-1, -1, -1, -1, -1, 16, 17, 18});
}

TEST_CASE("rows of several sources are drawn by weight, each once before any comes again") {
  // A conversation fills a row; those of the second source begin at 1000.
  std::vector<EncodedChat> few, many;
  for (int32_t i = 0; i < 4; ++i) few.push_back(chat_of(1000 + 10 * i, 9, 3));
  for (int32_t i = 0; i < 20; ++i) many.push_back(chat_of(10 * i, 9, 3));
  const ChatSamples a(many, 8), b(few, 8);
  const MixedSamples<ChatSamples> mixed({{&a, 1.0}, {&b, 3.0}}, 7);
  REQUIRE(mixed.size() == 24);
  CHECK(mixed.samples_of(0) == 6);
  CHECK(mixed.samples_of(1) == 18);
  const auto drawn = [](const MixedSamples<ChatSamples>& source, int64_t epoch) {
    std::vector<int64_t> all(static_cast<std::size_t>(source.size()));
    std::iota(all.begin(), all.end(), 0);
    const Batch batch = source.collate({all, epoch, false});
    CHECK(batch.target_count == 3 * source.size());
    return row_numbers(batch[kInputs].select(1, 0).contiguous());
  };
  std::map<int64_t, int> times;
  for (int64_t epoch = 0; epoch < 10; ++epoch)
    for (const int64_t token : drawn(mixed, epoch)) ++times[token];
  CHECK(times.size() == 24);
  for (const auto& [token, count] : times) CHECK(count == (token < 1000 ? 3 : 45));
  CHECK(drawn(mixed, 3) == drawn(MixedSamples<ChatSamples>({{&a, 1.0}, {&b, 3.0}}, 7), 3));
  CHECK(drawn(mixed, 3) != drawn(MixedSamples<ChatSamples>({{&a, 1.0}, {&b, 3.0}}, 8), 3));
  CHECK(mixed.fingerprint() != MixedSamples<ChatSamples>({{&a, 1.0}, {&b, 2.0}}, 7).fingerprint());
}

TEST_CASE("the fingerprint of conversations depends on tokens, targets and rows") {
  const auto fingerprint = [](const std::vector<EncodedChat>& chats, int64_t block_size) {
    return ChatSamples(chats, block_size).fingerprint();
  };
  const std::vector<EncodedChat> chats = {chat_of(10, 4, 2), chat_of(20, 3, 1)};
  CHECK(fingerprint(chats, 8) == fingerprint(chats, 8));
  CHECK(fingerprint(chats, 8) != fingerprint(chats, 4));
  CHECK(fingerprint(chats, 8) != fingerprint({chat_of(10, 4, 1), chats[1]}, 8));
  CHECK(fingerprint(chats, 8) != fingerprint({chat_of(11, 4, 2), chats[1]}, 8));
}

}  // namespace ddp::train
