#include "trainer/parallel/strategy/pipeline_schedule.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <tuple>

namespace ddp::train {
namespace {

using Kind = PipelineAction::Kind;

void all_of(PipelineOrder& order, Kind kind, int stage, int64_t micro_batches) {
  for (int64_t i = 0; i < micro_batches; ++i) order.push_back({kind, stage, i});
}

PipelineOrder gpipe(const PipelineShape& shape, int rank) {
  PipelineOrder order;
  all_of(order, Kind::kForward, rank, shape.micro_batches);
  all_of(order, Kind::kBackward, rank, shape.micro_batches);
  return order;
}

PipelineOrder one_forward_one_backward(const PipelineShape& shape, int rank) {
  const int64_t m = shape.micro_batches;
  const int64_t ahead = std::min<int64_t>(m, shape.ranks - rank - 1);
  PipelineOrder order;
  all_of(order, Kind::kForward, rank, ahead);
  for (int64_t i = 0; i < m; ++i) {
    if (ahead + i < m) order.push_back({Kind::kForward, rank, ahead + i});
    order.push_back({Kind::kBackward, rank, i});
  }
  return order;
}

// Micro-batches go through the chunks in groups of as many as there are ranks.
PipelineOrder interleaved(const PipelineShape& shape, int rank) {
  const int64_t p = shape.ranks;
  const int64_t v = shape.chunks;
  const int64_t all = shape.micro_batches * v;
  const auto pass = [&](Kind kind, int64_t k) {
    const int64_t chunk = kind == Kind::kForward ? k % (p * v) / p : v - 1 - k % (p * v) / p;
    return PipelineAction{kind, static_cast<int>(chunk * p + rank), k / (p * v) * p + k % p};
  };
  const int64_t ahead = std::min(all, 2 * (p - rank - 1) + (v - 1) * p);
  PipelineOrder order;
  for (int64_t k = 0; k < ahead; ++k) order.push_back(pass(Kind::kForward, k));
  for (int64_t k = 0; k < all; ++k) {
    if (ahead + k < all) order.push_back(pass(Kind::kForward, ahead + k));
    order.push_back(pass(Kind::kBackward, k));
  }
  return order;
}

int64_t duration(Kind kind) { return kind == Kind::kBackward ? 2 : 1; }

/// Runs the computations of all ranks as if messages took no time, and adds each message to the
/// orders of both its ranks at the time at which it is ready.
class Merge {
 public:
  Merge(const PipelineShape& shape, std::vector<PipelineOrder> computed)
      : shape_(shape), computed_(std::move(computed)), ranks_(computed_.size()) {}

  std::vector<PipelineOrder> merged() {
    while (const auto next = next_event()) {
      if (next->message)
        deliver(*next->message);
      else
        compute(next->rank);
    }
    std::vector<PipelineOrder> orders;
    for (auto& rank : ranks_) orders.push_back(std::move(rank.order));
    return orders;
  }

 private:
  struct Rank {
    std::size_t done = 0;  // of its computations
    int64_t free_at = 0;
    PipelineOrder order;
  };
  struct Message {
    int64_t ready_at;
    PipelineAction send;
    PipelineAction receive;
  };
  struct Event {
    int64_t at;
    int rank;
    std::optional<std::size_t> message;
  };
  using Key = std::tuple<Kind, int, int64_t>;

  Rank& rank_of(const PipelineAction& action) {
    return ranks_[static_cast<std::size_t>(shape_.rank_of(action.stage))];
  }

  /// The receive that must come before `action`; that of the own forward pass holds by the order.
  std::optional<Key> needed_by(const PipelineAction& action) const {
    if (action.kind == Kind::kForward && action.stage > 0)
      return Key{Kind::kReceiveInput, action.stage, action.micro_batch};
    if (action.kind == Kind::kBackward && !shape_.is_last(action.stage))
      return Key{Kind::kReceiveGradient, action.stage, action.micro_batch};
    return std::nullopt;
  }

  // At equal times messages come first: they have arrived when the computation begins.
  std::optional<Event> next_event() const {
    std::optional<Event> next;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      if (!next || messages_[i].ready_at < next->at) next = Event{messages_[i].ready_at, 0, i};
    }
    for (int rank = 0; rank < shape_.ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      if (ranks_[r].done == computed_[r].size()) continue;
      const auto needed = needed_by(computed_[r][ranks_[r].done]);
      int64_t at = ranks_[r].free_at;
      if (needed) {
        const auto received = received_.find(*needed);
        if (received == received_.end()) continue;
        at = std::max(at, received->second);
      }
      if (!next || at < next->at) next = Event{at, rank, std::nullopt};
    }
    return next;
  }

  void deliver(std::size_t index) {
    const Message message = messages_[index];
    messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(index));
    const auto& [kind, stage, micro_batch] = message.receive;
    received_[Key{kind, stage, micro_batch}] = message.ready_at;
    rank_of(message.send).order.push_back(message.send);
    rank_of(message.receive).order.push_back(message.receive);
  }

  void compute(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    Rank& here = ranks_[r];
    const PipelineAction action = computed_[r][here.done];
    const auto needed = needed_by(action);
    const int64_t begin = needed ? std::max(here.free_at, received_.at(*needed)) : here.free_at;
    here.free_at = begin + duration(action.kind);
    ++here.done;
    here.order.push_back(action);
    const auto [kind, stage, micro_batch] = action;
    if (kind == Kind::kForward && !shape_.is_last(stage))
      messages_.push_back({here.free_at,
                           {Kind::kSendOutput, stage, micro_batch},
                           {Kind::kReceiveInput, stage + 1, micro_batch}});
    if (kind == Kind::kBackward && stage > 0)
      messages_.push_back({here.free_at,
                           {Kind::kSendGradient, stage, micro_batch},
                           {Kind::kReceiveGradient, stage - 1, micro_batch}});
  }

  PipelineShape shape_;
  std::vector<PipelineOrder> computed_;
  std::vector<Rank> ranks_;
  std::vector<Message> messages_;
  std::map<Key, int64_t> received_;
};

}  // namespace

bool suits(PipelineSchedule schedule, const PipelineShape& shape) {
  return schedule != PipelineSchedule::kInterleaved || shape.micro_batches % shape.ranks == 0;
}

PipelineOrder pipeline_computations(PipelineSchedule schedule, const PipelineShape& shape,
                                    int rank) {
  switch (schedule) {
    case PipelineSchedule::kGpipe:
      return gpipe(shape, rank);
    case PipelineSchedule::k1f1b:
      return one_forward_one_backward(shape, rank);
    case PipelineSchedule::kInterleaved:
      return interleaved(shape, rank);
  }
  return {};
}

std::vector<PipelineOrder> pipeline_orders(PipelineSchedule schedule, const PipelineShape& shape) {
  std::vector<PipelineOrder> computed;
  for (int rank = 0; rank < shape.ranks; ++rank)
    computed.push_back(pipeline_computations(schedule, shape, rank));
  return Merge(shape, std::move(computed)).merged();
}

// A pass of a rank through all of its stages takes `chunks` times as long as one of a stage; the
// first waits for ranks - 1 of the latter.
double pipeline_idle_share(const PipelineShape& shape) {
  const double steps = shape.ranks - 1;
  return steps / (static_cast<double>(shape.micro_batches * shape.chunks) + steps);
}

int64_t in_flight(const PipelineOrder& order) {
  int64_t now = 0;
  int64_t most = 0;
  for (const PipelineAction& action : order) {
    if (action.kind == Kind::kForward) most = std::max(most, ++now);
    if (action.kind == Kind::kBackward) --now;
  }
  return most;
}

}  // namespace ddp::train
