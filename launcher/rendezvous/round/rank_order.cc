#include "launcher/rendezvous/round/rank_order.h"

#include <algorithm>
#include <numeric>

namespace ddp::launch {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Removes a number from the front; without leading zeros, so that longer means greater.
std::string_view take_number(std::string_view& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_digit);
  std::string_view number = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  text.remove_prefix(number.size());
  number.remove_prefix(std::min(number.find_first_not_of('0'), number.size()));
  return number;
}

int compare_numbers(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  return a.compare(b);
}

int compare_places(const NodePlace& a, const NodePlace& b) {
  const int by_key = natural_compare(a.key, b.key);
  return by_key != 0 ? by_key : natural_compare(a.host, b.host);
}

}  // namespace

int natural_compare(std::string_view a, std::string_view b) {
  const int as_text = a.size() != b.size() ? (a.size() < b.size() ? -1 : 1) : a.compare(b);
  while (!a.empty() && !b.empty()) {
    int order = 0;
    if (is_digit(a.front()) && is_digit(b.front())) {
      const auto first = take_number(a);
      order = compare_numbers(first, take_number(b));
    } else {
      order = a.substr(0, 1).compare(b.substr(0, 1));
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
    if (order != 0) return order;
  }
  if (a.empty() != b.empty()) return a.empty() ? -1 : 1;
  return as_text;
}

std::vector<std::size_t> rank_order(std::string_view by, const std::vector<NodePlace>& nodes) {
  std::vector<std::size_t> order(nodes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto precedes = [&](std::size_t i, std::size_t j) {
    const NodePlace& a = nodes[i];
    const NodePlace& b = nodes[j];
    const bool either_was_first = a.before == 0 || b.before == 0;
    const int place = by == kOrderByArrival || either_was_first ? 0 : compare_places(a, b);
    return place != 0 ? place < 0 : a.before < b.before;
  };
  std::stable_sort(order.begin(), order.end(), precedes);
  return order;
}

}  // namespace ddp::launch
