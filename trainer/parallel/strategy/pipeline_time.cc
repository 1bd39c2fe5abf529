#include "trainer/parallel/strategy/pipeline_time.h"

#include <algorithm>
#include <cstddef>

namespace ddp::train {
namespace {

using Kind = PipelineAction::Kind;

constexpr double kNotYet = -1.0;

class Player {
 public:
  Player(PipelineSchedule schedule, const PipelineShape& shape,
         const std::vector<StageSeconds>& stages, double message_s)
      : shape_(shape),
        stages_(stages),
        message_s_(message_s),
        passes_(static_cast<std::size_t>(shape.stages() * shape.micro_batches)) {
    for (int rank = 0; rank < shape.ranks; ++rank)
      ranks_.push_back({pipeline_computations(schedule, shape, rank)});
  }

  PipelineTime play() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank& rank : ranks_)
        while (rank.done < rank.order.size() && perform(rank)) moved = true;
    }
    PipelineTime time;
    double busy = 0.0;
    for (const Rank& rank : ranks_) {
      time.seconds = std::max(time.seconds, rank.free_at);
      busy += rank.busy;
    }
    time.idle_share = 1.0 - busy / (time.seconds * static_cast<double>(ranks_.size()));
    return time;
  }

 private:
  struct Rank {
    PipelineOrder order;
    std::size_t done = 0;
    double free_at = 0.0;
    double busy = 0.0;
  };
  struct Pass {  // when they ended
    double forward = kNotYet;
    double backward = kNotYet;
  };

  Pass& pass(int stage, int64_t micro_batch) {
    return passes_[static_cast<std::size_t>(stage * shape_.micro_batches + micro_batch)];
  }

  /// When what `action` needs of another stage is there; kNotYet before that is known.
  double ready_at(const PipelineAction& action) {
    const auto arrival = [&](double sent) { return sent == kNotYet ? kNotYet : sent + message_s_; };
    if (action.kind == Kind::kForward)
      return action.stage == 0 ? 0.0 : arrival(pass(action.stage - 1, action.micro_batch).forward);
    if (shape_.is_last(action.stage)) return 0.0;
    return arrival(pass(action.stage + 1, action.micro_batch).backward);
  }

  double seconds_of(const PipelineAction& action) const {
    const StageSeconds& stage = stages_[static_cast<std::size_t>(action.stage)];
    return action.kind == Kind::kForward ? stage.forward : stage.backward;
  }

  bool perform(Rank& rank) {
    const PipelineAction& action = rank.order[rank.done];
    const double ready = ready_at(action);
    if (ready == kNotYet) return false;
    const double seconds = seconds_of(action);
    rank.free_at = std::max(rank.free_at, ready) + seconds;
    rank.busy += seconds;
    ++rank.done;
    Pass& ended = pass(action.stage, action.micro_batch);
    (action.kind == Kind::kForward ? ended.forward : ended.backward) = rank.free_at;
    return true;
  }

  PipelineShape shape_;
  const std::vector<StageSeconds>& stages_;
  double message_s_;
  std::vector<Pass> passes_;
  std::vector<Rank> ranks_;
};

/// Of the rank with most to do, for one micro-batch.
double slowest_rank(const PipelineShape& shape, const std::vector<StageSeconds>& stages) {
  std::vector<double> ranks(static_cast<std::size_t>(shape.ranks), 0.0);
  for (std::size_t i = 0; i < stages.size(); ++i)
    ranks[i % ranks.size()] += stages[i].forward + stages[i].backward;
  return *std::max_element(ranks.begin(), ranks.end());
}

}  // namespace

PipelineTime pipeline_time(PipelineSchedule schedule, const PipelineShape& shape,
                           const std::vector<StageSeconds>& stages, double message_s) {
  constexpr int64_t kPlayed = 8;  // for each rank: enough for a steady state
  const int64_t most = kPlayed * shape.ranks;
  if (shape.micro_batches <= most) return Player(schedule, shape, stages, message_s).play();
  PipelineShape shorter = shape;
  shorter.micro_batches = most;
  PipelineTime time = Player(schedule, shorter, stages, message_s).play();
  const double busy = (1.0 - time.idle_share) * time.seconds;
  const double factor =
      static_cast<double>(shape.micro_batches) / static_cast<double>(shorter.micro_batches);
  time.seconds += static_cast<double>(shape.micro_batches - shorter.micro_batches) *
                  slowest_rank(shape, stages);
  time.idle_share = 1.0 - busy * factor / time.seconds;
  return time;
}

}  // namespace ddp::train
