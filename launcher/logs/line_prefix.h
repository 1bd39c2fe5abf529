// The prefix of console lines: a compiled --log-line-prefix-template. Pure.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launch {

struct PrefixPlace {
  std::string role;
  std::string host;  // its first part is shown
  int local_rank = 0;
  int rank = 0;
};

class LinePrefix {
 public:
  using Clock = std::chrono::system_clock;
  using Time = Clock::time_point;

  LinePrefix() = default;
  /// Compiles a Python string.Template: $name or ${name}; `$$` is a dollar; unknown names are kept.
  /// Names: role_name, local_rank, rank, hostname, time.
  LinePrefix(std::string_view text, const PrefixPlace& place);

  /// Appends the prefix for a line written by these local ranks (ascending, on one node).
  void append_to(std::string& out, std::span<const int> local_ranks, Time now) const;
  bool has_time() const { return has_time_; }

 private:
  enum class Kind { kText, kLocalRankMacro, kRankMacro, kTimeMacro };
  struct Piece {
    Kind kind;
    std::string text;
  };
  void add_text(std::string_view text);
  void add_macro(std::string_view name, std::string_view whole, const PrefixPlace& place);

  std::vector<Piece> pieces_;
  int first_rank_ = 0;  // global rank of local rank 0
  bool has_time_ = false;
};

/// "0-3,7": ascending numbers, each plus `offset`.
void append_ranks(std::string& out, std::span<const int> ranks, int offset);

/// "2026-11-21 03:24:15.123", local time.
void append_time(std::string& out, LinePrefix::Time time);

}  // namespace ddp::launch
