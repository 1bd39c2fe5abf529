// Where an agent listens.
#pragma once

#include <compare>
#include <string>

namespace ddp::launch {

struct Place {
  std::string address;  // numeric
  int port = 0;
  auto operator<=>(const Place&) const = default;
};

}  // namespace ddp::launch
