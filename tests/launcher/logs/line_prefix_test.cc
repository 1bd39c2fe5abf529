#include "launcher/logs/line_prefix.h"

#include "tests/support/catch.h"

namespace ddp::launch {
namespace {

const PrefixPlace kPlace{"trainer", "node7.example.org", 1, 5};

std::string shown(std::string_view text, const std::vector<int>& ranks = {1}) {
  std::string out;
  LinePrefix(text, kPlace).append_to(out, ranks, {});
  return out;
}

TEST_CASE("a prefix template is Python's") {
  CHECK(shown("[${role_name}${local_rank}]:") == "[trainer1]:");
  CHECK(shown("$hostname:$rank ") == "node7:5 ");
  CHECK(shown("$$ ${what} $what $ ${ ${} ${rank $5 $ranks$") ==
        "$ ${what} $what $ ${ ${} ${rank $5 $ranks$");
  CHECK(shown("").empty());
}

TEST_CASE("a prefix of several ranks names them all, shortly") {
  CHECK(shown("[${local_rank}]", {0, 1, 2, 3}) == "[0-3]");
  CHECK(shown("$rank:", {0, 2, 3, 7}) == "4,6-7,11:");
}

TEST_CASE("the time of a line has milliseconds") {
  CHECK(LinePrefix("${time} ", kPlace).has_time());
  CHECK_FALSE(LinePrefix("${rank} ", kPlace).has_time());
  const std::string time = shown("$time|");
  CHECK(time.size() == std::string("1970-01-01 00:00:00.000|").size());
  CHECK(time.substr(time.size() - 5) == ".000|");
}

}  // namespace
}  // namespace ddp::launch
