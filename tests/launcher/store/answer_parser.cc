#include "tests/launcher/store/answer_parser.h"

#include <cstring>
#include <utility>

namespace ddp::launch {
namespace {

// Size in bytes of the number that an answer begins with; 0: it has none.
std::size_t number_size(QueryType type) {
  switch (type) {
    case QueryType::kPing:
      return 4;
    case QueryType::kCheck:
    case QueryType::kWait:
    case QueryType::kCancelWait:
    case QueryType::kBarrier:
      return 1;
    case QueryType::kAdd:
    case QueryType::kGetNumKeys:
    case QueryType::kDeleteKey:
    case QueryType::kQueuePop:
    case QueryType::kQueueLen:
    case QueryType::kListKeys:
      return 8;
    default:
      return 0;
  }
}

}  // namespace

bool has_answer(QueryType type) {
  return number_size(type) > 0 || type == QueryType::kGet || type == QueryType::kCompareSet ||
         type == QueryType::kMultiGet;
}

void AnswerParser::expect(QueryType type, std::size_t keys) {
  expected_ = type;
  answer_ = {type, 0, {}};
  has_number_ = number_size(type) == 0;
  values_left_ = has_number_ ? keys : 0;
  taken_ = 0;
}

void AnswerParser::feed(std::string_view bytes) {
  input_.erase(0, std::exchange(at_, 0));
  input_.append(bytes);
}

AnswerParser::Next AnswerParser::next(StoreAnswer& answer) {
  if (!expected_) return at_ == input_.size() ? Next::kNeedsMoreBytes : Next::kMalformed;
  if (!has_number_ && !take_number()) return Next::kNeedsMoreBytes;
  if (values_left_ > limits_.keys_per_message) return Next::kMalformed;
  const Next values = take_values();
  if (values != Next::kComplete) return values;
  expected_.reset();
  taken_ = 0;
  answer = std::exchange(answer_, {});
  return Next::kComplete;
}

// Some numbers are counts of the values that follow.
bool AnswerParser::take_number() {
  const std::size_t size = number_size(*expected_);
  if (input_.size() - at_ < size) return false;
  std::memcpy(&answer_.number, input_.data() + at_, size);
  at_ += size;
  has_number_ = true;
  const auto number = static_cast<std::uint64_t>(answer_.number);
  if (*expected_ == QueryType::kListKeys) values_left_ = number;
  if (*expected_ == QueryType::kQueuePop) values_left_ = number > 0 ? 1 : 0;
  return true;
}

AnswerParser::Next AnswerParser::take_values() {
  for (; values_left_ > 0; --values_left_) {
    std::uint64_t size = 0;
    const std::size_t left = input_.size() - at_;
    if (left < sizeof size) return Next::kNeedsMoreBytes;
    std::memcpy(&size, input_.data() + at_, sizeof size);
    if (size > limits_.message || taken_ + size > limits_.message) return Next::kMalformed;
    if (left - sizeof size < size) return Next::kNeedsMoreBytes;
    answer_.values.push_back(input_.substr(at_ + sizeof size, size));
    at_ += sizeof size + size;
    taken_ += size + sizeof(std::string);
  }
  return Next::kComplete;
}

}  // namespace ddp::launch
