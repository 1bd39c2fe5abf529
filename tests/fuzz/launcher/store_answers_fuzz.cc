// Whatever a store answers: nothing beyond the limits is taken in, and answers come out alike
// however they are cut. Input: up to eight bytes that say what was asked, a zero, then the answers.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/rendezvous/torchrun_static.h"
#include "launcher/store/answer_parser.h"
#include "tests/fuzz/check.h"

using namespace ddp::launch;

namespace {

StoreLimits tight_limits() {
  StoreLimits limits;
  limits.keys_per_message = 16;
  limits.message = 1024;
  return limits;
}

std::string shown(const StoreAnswer& answer) {
  std::string text =
      std::to_string(static_cast<int>(answer.to)) + ":" + std::to_string(answer.number);
  std::size_t size = 0;
  for (const auto& value : answer.values) {
    text += "," + value;
    size += value.size();
  }
  FUZZ_CHECK(size <= tight_limits().message);
  FUZZ_CHECK(answer.values.size() <= tight_limits().keys_per_message);
  return text + ";";
}

std::string all_answers(std::string_view asked, std::string_view bytes, std::size_t piece) {
  AnswerParser parser(tight_limits());
  std::string all;
  StoreAnswer answer;
  std::size_t at = 0;
  for (const char each : asked) {
    const auto type = static_cast<QueryType>(static_cast<std::uint8_t>(each) % 19);
    if (!has_answer(type)) continue;
    parser.expect(type, static_cast<std::uint8_t>(each) / 19);
    auto next = AnswerParser::Next::NeedsMoreBytes;
    while ((next = parser.next(answer)) == AnswerParser::Next::NeedsMoreBytes &&
           at < bytes.size()) {
      parser.feed(bytes.substr(at, piece));
      at += piece;
    }
    if (next == AnswerParser::Next::Malformed) return all + "malformed";
    if (next == AnswerParser::Next::NeedsMoreBytes) return all;
    all += shown(answer);
  }
  return all;
}

// Another node's words, as ranks and as what it says of its workers.
void hear(const std::string& text) {
  TorchrunNode node;
  node.nnodes = 2;
  for (node.node_rank = 0; node.node_rank < 2; ++node.node_rank) {
    TorchrunExchange exchange(node);
    const std::string own = R"({"role": "default", "rank": 0, "local_world_size": 1})";
    if (node.node_rank == 0) exchange.hear({QueryType::MultiGet, 0, {own, text}});
    if (node.node_rank == 1) exchange.hear({QueryType::Get, 0, {text}});
    FUZZ_CHECK(exchange.ranks().has_value() == exchange.problem().empty());
    if (!exchange.ranks()) continue;
    const TorchrunRanks& ranks = *exchange.ranks();
    FUZZ_CHECK(ranks.rank_offset >= 0 && ranks.rank_offset < ranks.world_size);
    FUZZ_CHECK(ranks.role_rank_offset >= 0 && ranks.role_rank_offset < ranks.role_world_size);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.substr(0, 9).find('\0'), std::min<std::size_t>(8, size));
  const std::string_view asked = input.substr(0, end);
  const std::string_view bytes = input.substr(std::min(end + 1, size));
  const std::string whole = all_answers(asked, bytes, bytes.size() + 1);
  FUZZ_CHECK(all_answers(asked, bytes, 1) == whole);
  FUZZ_CHECK(all_answers(asked, bytes, 7) == whole);
  hear(std::string(bytes));
  return 0;
}
