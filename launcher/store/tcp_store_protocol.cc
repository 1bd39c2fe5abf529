#include "launcher/store/tcp_store_protocol.h"

#include <cstring>
#include <utility>

namespace ddp::launch {
namespace {

constexpr std::size_t kPerText = sizeof(std::string);
constexpr std::size_t kKeptInput = 64 << 10;

}  // namespace

void put_text(std::string& out, std::string_view text) {
  put_number(out, static_cast<std::uint64_t>(text.size()));
  out.append(text);
}

void RequestParser::feed(std::string_view bytes) {
  if (at_ > 0) input_.erase(0, std::exchange(at_, 0));
  if (input_.empty() && input_.capacity() > kKeptInput) input_ = {};
  input_.append(bytes);
}

RequestParser::Next RequestParser::next(Request& request) {
  while (!broken_) {
    if (!begun_ && left() == 0) return Next::kNeedsMoreBytes;
    if (!begun_ && !begin()) break;
    while (rounds_ > 0) {
      const Take taken = take_field();
      if (taken == Take::kNeedsMoreBytes) return Next::kNeedsMoreBytes;
      broken_ = taken == Take::kTooLong;
      if (broken_) return Next::kMalformed;
    }
    begun_ = false;
    taken_ = 0;
    request = std::exchange(request_, {});
    if (request.type != QueryType::kValidate) return Next::kComplete;
    if (static_cast<std::uint32_t>(request.number) != kTcpStoreMagic) break;
    validated_ = true;
  }
  broken_ = true;
  return Next::kMalformed;
}

bool RequestParser::begin() {
  const auto type = static_cast<std::uint8_t>(input_[at_++]);
  request_.type = static_cast<QueryType>(type);
  if (type >= kRequestFields.size() || validated_ == (request_.type == QueryType::kValidate))
    return false;
  fields_ = kRequestFields.at(type);
  field_ = 0;
  rounds_ = fields_.empty() ? 0 : 1;
  begun_ = true;
  return true;
}

RequestParser::Take RequestParser::take_field() {
  switch (fields_[field_]) {
    case '#':
      return take_count();
    case 'k':
      return take_text(request_.keys, limits_.key);
    case 'v':
      return take_text(request_.values, limits_.value);
    case 'u':
      return take_number<std::uint32_t>();
    default:
      return take_number<std::int64_t>();
  }
}

// To the next field, or to the first of the next round.
void RequestParser::advance() {
  if (++field_ < fields_.size()) return;
  field_ = fields_[0] == '#' ? 1 : 0;
  --rounds_;
}

RequestParser::Take RequestParser::take_count() {
  std::uint64_t count = 0;
  if (!peek(count)) return Take::kNeedsMoreBytes;
  if (count > limits_.keys_per_message) return Take::kTooLong;
  at_ += sizeof count;
  rounds_ = count;
  field_ = 1;
  return Take::kDone;
}

template <typename Integer>
RequestParser::Take RequestParser::take_number() {
  Integer value = 0;
  if (!peek(value)) return Take::kNeedsMoreBytes;
  at_ += sizeof value;
  request_.number = static_cast<std::int64_t>(value);
  advance();
  return Take::kDone;
}

RequestParser::Take RequestParser::take_text(std::vector<std::string>& into, std::size_t limit) {
  std::uint64_t size = 0;
  if (!peek(size)) return Take::kNeedsMoreBytes;
  if (size > limit || taken_ + size + kPerText > limits_.message) return Take::kTooLong;
  if (left() - sizeof size < size) return Take::kNeedsMoreBytes;
  into.push_back(input_.substr(at_ + sizeof size, size));
  at_ += sizeof size + size;
  taken_ += size + kPerText;
  advance();
  return Take::kDone;
}

template <typename Integer>
bool RequestParser::peek(Integer& value) const {
  if (left() < sizeof value) return false;
  std::memcpy(&value, input_.data() + at_, sizeof value);
  return true;
}

}  // namespace ddp::launch
