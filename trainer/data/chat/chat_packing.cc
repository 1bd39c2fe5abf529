#include "trainer/data/chat/chat_packing.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace ddp::train {

std::vector<std::vector<std::size_t>> pack(std::span<const int64_t> sizes, int64_t capacity) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  std::vector<std::vector<std::size_t>> rows;
  std::set<std::pair<int64_t, std::size_t>> room;  // left in each row
  for (const std::size_t item : order) {
    auto found = room.lower_bound({sizes[item], 0});
    std::pair<int64_t, std::size_t> place{capacity, rows.size()};
    if (found == room.end()) {
      rows.emplace_back();
    } else {
      place = *found;
      room.erase(found);
    }
    rows[place.second].push_back(item);
    room.insert({place.first - sizes[item], place.second});
  }
  for (auto& row : rows) std::sort(row.begin(), row.end());
  std::sort(rows.begin(), rows.end());
  return rows;
}

}  // namespace ddp::train
