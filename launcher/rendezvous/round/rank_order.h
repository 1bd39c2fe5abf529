// The order of a round's nodes, from which their ranks follow. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launch {

/// --rank-order: kOrderByHost, kOrderByArrival, or the name of an environment variable.
inline constexpr std::string_view kOrderByHost = "host";
inline constexpr std::string_view kOrderByArrival = "arrival";

struct NodePlace {
  std::string key{};   // place in the cluster, or the variable's value; may be empty
  std::string host{};  // name
  int before = 0;      // rank in the last round; newcomers follow in order of arrival
};

/// Returns the indices of `nodes` in the order of their ranks: by key, then host, in natural order,
/// then by `before`; with kOrderByArrival by `before` alone. The node that had rank 0 keeps it, as
/// programs have files on its disk.
std::vector<std::size_t> rank_order(std::string_view by, const std::vector<NodePlace>& nodes);

/// Compares in natural order: gpu2 comes before gpu10. Numbers of equal value are ordered by
/// length, all else by bytes. Returns a negative number, 0 or a positive one.
int natural_compare(std::string_view a, std::string_view b);

}  // namespace ddp::launch
