#include "launcher/logs/repeat_folding.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "launcher/base/clock.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kMostBytes = 4 << 20;  // held at most
constexpr std::size_t kMostLines = 4096;     // so that scanning all of them stays fast
constexpr std::size_t kLookAhead = 256;      // lines compared: ranks run nearly in step

}  // namespace

RepeatFolding::RepeatFolding(std::chrono::milliseconds longest_wait, Sink sink)
    : longest_wait_(longest_wait), sink_(std::move(sink)) {}

void RepeatFolding::join(int rank) {
  if (newest_.try_emplace(rank, waiting_.end()).second) ++without_;
}

void RepeatFolding::leave(int rank) {
  const auto found = newest_.find(rank);
  if (found == newest_.end()) return;
  if (found->second == waiting_.end()) --without_;
  newest_.erase(found);
}

// A rank's line may join any line after its own newest one, which keeps its order.
bool RepeatFolding::attach(Place first, int rank, std::string_view line) {
  for (std::size_t i = 0; first != waiting_.end() && i < kLookAhead; ++first, ++i) {
    if (first->line != line) continue;
    auto& ranks = first->ranks;
    ranks.insert(std::lower_bound(ranks.begin(), ranks.end(), rank), rank);
    newest_[rank] = first;
    return true;
  }
  return false;
}

void RepeatFolding::add(int rank, std::string_view line, Time now) {
  join(rank);
  Place& newest = newest_[rank];
  const bool had_none = newest == waiting_.end();
  const Place behind = had_none ? waiting_.begin() : std::next(newest);
  if (!attach(behind, rank, line)) {
    // Before the others' next lines: this rank may be about to write those as well.
    newest = waiting_.insert(behind, {std::string(line), {rank}, now + longest_wait_});
    bytes_ += line.size() + sizeof(Entry);
  }
  if (had_none) --without_;
  while ((bytes_ > kMostBytes || waiting_.size() > kMostLines) && waiting_.size() > 1)
    give_out_first();
}

bool RepeatFolding::all_have_passed_first() const { return !waiting_.empty() && without_ == 0; }

void RepeatFolding::settle(Time now) {
  while (all_have_passed_first()) give_out_first();
  const auto due = [now](const Entry& entry) { return entry.deadline <= now; };
  const auto last_due = std::find_if(waiting_.rbegin(), waiting_.rend(), due);
  for (auto left = std::distance(last_due, waiting_.rend()); left > 0; --left) give_out_first();
}

std::optional<RepeatFolding::Time> RepeatFolding::deadline() const {
  std::optional<Time> first;
  for (const Entry& entry : waiting_) first = earlier(first, entry.deadline);
  return first;
}

void RepeatFolding::flush() {
  while (!waiting_.empty()) give_out_first();
}

void RepeatFolding::give_out_first() {
  for (const int rank : waiting_.front().ranks) {
    const auto found = newest_.find(rank);
    if (found == newest_.end() || found->second != waiting_.begin()) continue;
    found->second = waiting_.end();
    ++without_;
  }
  const Entry entry = std::move(waiting_.front());
  waiting_.pop_front();
  bytes_ -= entry.line.size() + sizeof(Entry);
  sink_(entry.ranks, entry.line);
}

}  // namespace ddp::launch
