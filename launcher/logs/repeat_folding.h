// Folds identical lines of several ranks into one, held for a bounded time while other ranks may
// still write it. Never reorders one rank's lines. Uses no clock and no stream.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launch {

class RepeatFolding {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// `ranks`: ascending, the ranks that wrote the line.
  using Sink = std::function<void(const std::vector<int>& ranks, std::string_view line)>;

  RepeatFolding(std::chrono::milliseconds longest_wait, Sink sink);

  /// Adds or removes a rank that may write lines; lines wait for these ranks only. After leave()
  /// the rank writes nothing more until flush().
  void join(int rank);
  void leave(int rank);

  void add(int rank, std::string_view line, Time now);
  /// Emits lines that no other rank can repeat any more or that have waited long enough.
  void settle(Time now);
  /// When settle() is due; nullopt if nothing is held.
  std::optional<Time> deadline() const;
  /// Emits everything.
  void flush();

 private:
  struct Entry {
    std::string line;
    std::vector<int> ranks;
    Time deadline;
  };
  using Place = std::list<Entry>::iterator;

  bool attach(Place first, int rank, std::string_view line);
  void give_out_first();
  bool all_have_passed_first() const;

  std::chrono::milliseconds longest_wait_;
  Sink sink_;
  std::list<Entry> waiting_;
  std::size_t bytes_ = 0;        // in waiting_
  std::map<int, Place> newest_;  // each rank's newest line; end(): none is waiting
  std::size_t without_ = 0;      // ranks whose newest_ is end()
};

}  // namespace ddp::launch
