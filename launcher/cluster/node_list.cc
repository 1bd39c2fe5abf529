#include "launcher/cluster/node_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"

namespace ddp::launch {
namespace {

// Far above any cluster: a typing error must not eat the memory.
constexpr std::size_t kMostNames = 1'000'000;
constexpr std::size_t kMostDigits = 9;

using Names = std::vector<std::string>;

class NodeListParser {
 public:
  NodeListParser(std::string_view origin, std::string_view text) : origin_(origin), text_(text) {}

  Names all() {
    Names names;
    while (at_ < text_.size()) {
      for (auto& name : one_entry()) names.push_back(std::move(name));
      if (names.size() > kMostNames) fail("names more than a million nodes");
      if (at_ < text_.size()) ++at_;  // the comma
    }
    return names;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    usage_error(fmt::format("{}={}: {}; expected names like node[1-3,7],login", origin_,
                            printable(text_), what));
  }

  // Up to a comma outside brackets.
  Names one_entry() {
    Names names{""};
    while (at_ < text_.size() && text_[at_] != ',') {
      if (text_[at_] == ']') fail("has a ']' without '['");
      names = text_[at_] == '[' ? product(names, bracket()) : product(names, {plain_text()});
    }
    if (names.front().empty()) fail("has an empty name");
    return names;
  }

  std::string plain_text() {
    const auto end = std::min(text_.find_first_of(",[]", at_), text_.size());
    const std::string_view text = text_.substr(at_, end - at_);
    at_ = end;
    return std::string(text);
  }

  // "[1-3,7]" -> 1, 2, 3, 7.
  Names bracket() {
    const auto end = text_.find(']', at_);
    if (end == std::string_view::npos) fail("has a '[' without ']'");
    std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    Names numbers;
    for (std::size_t comma = 0; comma != std::string_view::npos;) {
      comma = inside.find(',');
      add_range(numbers, inside.substr(0, comma));
      if (comma != std::string_view::npos) inside.remove_prefix(comma + 1);
    }
    return numbers;
  }

  void add_range(Names& numbers, std::string_view range) const {
    const auto dash = range.find('-');
    const std::string_view low = range.substr(0, dash);
    const std::string_view high = dash == std::string_view::npos ? low : range.substr(dash + 1);
    const std::size_t first = number(low), last = number(high);
    if (last < first) fail("has a range that counts down");
    if (last - first + numbers.size() >= kMostNames) fail("names more than a million nodes");
    for (std::size_t n = first; n <= last; ++n)
      numbers.push_back(fmt::format("{:0{}}", n, low.size()));
  }

  std::size_t number(std::string_view text) const {
    const auto value = number_in<std::size_t>(text);
    if (!value || text.size() > kMostDigits) fail("has brackets that hold no numbers");
    return *value;
  }

  Names product(const Names& heads, const Names& tails) const {
    if (heads.size() * tails.size() > kMostNames) fail("names more than a million nodes");
    Names names;
    names.reserve(heads.size() * tails.size());
    for (const auto& head : heads) {
      for (const auto& tail : tails) names.push_back(head + tail);
    }
    return names;
  }

  std::string_view origin_;
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<std::string> expand_node_list(std::string_view origin, std::string_view text) {
  return NodeListParser(origin, text).all();
}

}  // namespace ddp::launch
