// Parses a TCPStore server's replies from a stream; replies carry no type, so the client keeps
// track of its requests. Pure; lengths are checked before memory is taken for them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/store/tcp_store_protocol.h"

namespace ddp::launch {

struct StoreAnswer {
  QueryType to = QueryType::kValidate;
  /// Nonce, sum, count, kReady, kStopWaiting ...; 0 where there is none.
  std::int64_t number = 0;
  std::vector<std::string> values;  // GET and COMPARE_SET: one; LIST_KEYS: the keys
};

bool has_answer(QueryType type);

class AnswerParser {
 public:
  enum class Next { kComplete, kNeedsMoreBytes, kMalformed };

  explicit AnswerParser(const StoreLimits& limits = {}) : limits_(limits) {}
  /// What was asked, once the former answer is complete; `keys`: how many it has.
  void expect(QueryType type, std::size_t keys);
  bool expects() const { return expected_.has_value(); }
  void feed(std::string_view bytes);
  /// Malformed is final: too long, or nothing was expected.
  Next next(StoreAnswer& answer);
  std::size_t buffered() const { return input_.size() - at_ + taken_; }

 private:
  bool take_number();
  Next take_values();

  StoreLimits limits_;
  std::string input_;
  std::size_t at_ = 0;
  std::optional<QueryType> expected_;
  bool has_number_ = false;
  std::uint64_t values_left_ = 0;
  std::size_t taken_ = 0;
  StoreAnswer answer_;
};

}  // namespace ddp::launch
