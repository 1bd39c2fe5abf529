// The orders in which the ranks of a pipeline compute, send and receive.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <utility>

#include "tests/support/catch.h"

#include "trainer/parallel/strategy/pipeline_schedule.h"

namespace ddp::train {
namespace {

using ActionKind = PipelineAction::Kind;
using Key = std::tuple<ActionKind, int, int64_t>;

Key key_of(const PipelineAction& action) { return {action.kind, action.stage, action.micro_batch}; }

bool computes(ActionKind kind) {
  return kind == ActionKind::kForward || kind == ActionKind::kBackward;
}

bool is_send(ActionKind kind) {
  return kind == ActionKind::kSendOutput || kind == ActionKind::kSendGradient;
}

/// The receive of a send.
PipelineAction other_end(const PipelineAction& send) {
  return send.kind == ActionKind::kSendOutput
             ? PipelineAction{ActionKind::kReceiveInput, send.stage + 1, send.micro_batch}
             : PipelineAction{ActionKind::kReceiveGradient, send.stage - 1, send.micro_batch};
}

constexpr double kForwardSeconds = 1.0;
constexpr double kBackwardSeconds = 2.0;

/// Whether all actions come to an end if a send waits for its receive, and a receive for its send.
bool ends_with_rendezvous(const PipelineShape& shape, const std::vector<PipelineOrder>& orders,
                          std::mt19937& random) {
  std::vector<std::size_t> at(orders.size(), 0);
  const auto now = [&](std::size_t rank) {
    return at[rank] < orders[rank].size() ? &orders[rank][at[rank]] : nullptr;
  };
  const auto can_act = [&](std::size_t rank) {
    const PipelineAction* action = now(rank);
    if (action == nullptr) return false;
    if (computes(action->kind)) return true;
    if (!is_send(action->kind)) return false;  // the sender makes both continue
    const auto receive = other_end(*action);
    const auto* theirs = now(static_cast<std::size_t>(shape.rank_of(receive.stage)));
    return theirs != nullptr && *theirs == receive;
  };
  while (true) {
    std::vector<std::size_t> able;
    for (std::size_t rank = 0; rank < orders.size(); ++rank) {
      if (can_act(rank)) able.push_back(rank);
    }
    if (able.empty()) break;
    // A random delay of every other rank.
    const std::size_t rank = able[random() % able.size()];
    const PipelineAction action = *now(rank);
    ++at[rank];
    if (is_send(action.kind))
      ++at[static_cast<std::size_t>(shape.rank_of(other_end(action).stage))];
  }
  for (std::size_t rank = 0; rank < orders.size(); ++rank) {
    if (at[rank] != orders[rank].size()) return false;
  }
  return true;
}

/// What an action needs to have been done before it, on its own rank.
std::vector<Key> needs_of(const PipelineShape& shape, const PipelineAction& action) {
  const auto [kind, stage, micro] = action;
  std::vector<Key> needs;
  switch (kind) {
    case ActionKind::kForward:
      if (stage > 0) needs.emplace_back(ActionKind::kReceiveInput, stage, micro);
      break;
    case ActionKind::kBackward:
      needs.emplace_back(ActionKind::kForward, stage, micro);
      if (!shape.is_last(stage)) needs.emplace_back(ActionKind::kReceiveGradient, stage, micro);
      break;
    case ActionKind::kSendOutput:
      needs.emplace_back(ActionKind::kForward, stage, micro);
      break;
    default:
      break;
  }
  return needs;
}

/// Each rank does everything once, and after what it needs; kinds ascend within a stage.
bool keeps_dependencies(const PipelineShape& shape, const std::vector<PipelineOrder>& orders) {
  std::set<Key> all;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    std::set<Key> done;
    std::map<std::pair<ActionKind, int>, int64_t> next;
    for (const PipelineAction& action : orders[static_cast<std::size_t>(rank)]) {
      if (shape.rank_of(action.stage) != rank) return false;
      for (const Key& need : needs_of(shape, action)) {
        if (!done.contains(need)) return false;
      }
      if (action.kind == ActionKind::kSendGradient &&
          !done.contains({ActionKind::kBackward, action.stage, action.micro_batch}))
        return false;
      if (next[{action.kind, action.stage}]++ != action.micro_batch) return false;
      if (!done.insert(key_of(action)).second) return false;
    }
    all.insert(done.begin(), done.end());
  }
  const auto m = static_cast<std::size_t>(shape.micro_batches);
  const auto s = static_cast<std::size_t>(shape.stages());
  return all.size() == m * (s * 2 + 4 * (s - 1));
}

/// Seconds of a step whose messages take no time and hold up no sender.
double makespan(const std::vector<PipelineOrder>& orders) {
  std::vector<std::size_t> at(orders.size(), 0);
  std::vector<double> clock(orders.size(), 0.0);
  std::map<Key, double> sent;      // by the key of the receive
  std::map<Key, double> received;  // when it can be used
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < orders.size(); ++rank) {
      for (; at[rank] < orders[rank].size(); ++at[rank], moved = true) {
        const PipelineAction& action = orders[rank][at[rank]];
        if (is_send(action.kind)) {
          sent[key_of(other_end(action))] = clock[rank];
        } else if (!computes(action.kind)) {
          const auto message = sent.find(key_of(action));
          if (message == sent.end()) break;
          received[key_of(action)] = message->second;  // is waited for when it is used
        } else {
          const bool forward = action.kind == ActionKind::kForward;
          for (const ActionKind kind : {ActionKind::kReceiveInput, ActionKind::kReceiveGradient}) {
            const auto message = received.find({kind, action.stage, action.micro_batch});
            if (message != received.end() && forward == (kind == ActionKind::kReceiveInput))
              clock[rank] = std::max(clock[rank], message->second);
          }
          clock[rank] += forward ? kForwardSeconds : kBackwardSeconds;
        }
      }
    }
  }
  CHECK(at[0] == orders[0].size());
  return *std::max_element(clock.begin(), clock.end());
}

std::vector<std::pair<PipelineSchedule, PipelineShape>> all_cases() {
  std::vector<std::pair<PipelineSchedule, PipelineShape>> cases;
  for (int p = 1; p <= 8; ++p) {
    for (const int64_t m : {1, 2, 3, 4, 5, 7, 8, 12, 16, 21, 24, 31, 32}) {
      for (const auto schedule : {PipelineSchedule::kGpipe, PipelineSchedule::k1f1b})
        cases.push_back({schedule, {p, 1, m}});
    }
    for (int v = 2; v <= 4 && p > 1; ++v) {
      for (int64_t m = p; m <= 32; m += p)
        cases.push_back({PipelineSchedule::kInterleaved, {p, v, m}});
    }
  }
  return cases;
}

}  // namespace

TEST_CASE("pipeline schedules keep every dependency and end with sends that wait") {
  std::mt19937 random(7);
  for (const auto& [schedule, shape] : all_cases()) {
    INFO(name_of(schedule) << ", " << shape.ranks << " ranks, " << shape.chunks << " chunks, "
                           << shape.micro_batches << " micro-batches");
    const auto orders = pipeline_orders(schedule, shape);
    CHECK(keeps_dependencies(shape, orders));
    for (int run = 0; run < 3; ++run) CHECK(ends_with_rendezvous(shape, orders, random));
  }
}

TEST_CASE("an order in which both ends send first does not end with sends that wait") {
  const PipelineShape shape{2, 1, 2};
  auto orders = pipeline_orders(PipelineSchedule::k1f1b, shape);
  const PipelineAction gradient{ActionKind::kReceiveGradient, 0, 0};
  const PipelineAction output{ActionKind::kSendOutput, 0, 1};
  auto& first = orders[0];
  const auto receives = std::find(first.begin(), first.end(), gradient);
  const auto sends = std::find(first.begin(), first.end(), output);
  REQUIRE(receives != first.end());
  REQUIRE(sends != first.end());
  std::iter_swap(receives, sends);
  std::mt19937 random(7);
  CHECK_FALSE(ends_with_rendezvous(shape, orders, random));
}

TEST_CASE("a pipeline's ranks hold as many micro-batches as their schedule says") {
  const auto held = [](PipelineSchedule schedule, const PipelineShape& shape, int rank) {
    return in_flight(pipeline_orders(schedule, shape)[static_cast<std::size_t>(rank)]);
  };
  for (int p = 2; p <= 8; ++p) {
    for (int rank = 0; rank < p; ++rank) {
      INFO("rank " << rank << " of " << p);
      const int64_t m = 4 * p;
      CHECK(held(PipelineSchedule::kGpipe, {p, 1, m}, rank) == m);
      CHECK(held(PipelineSchedule::k1f1b, {p, 1, m}, rank) == p - rank);
      CHECK(held(PipelineSchedule::k1f1b, {p, 1, 1}, rank) == 1);
      for (int v = 2; v <= 4; ++v) {
        CHECK(held(PipelineSchedule::kInterleaved, {p, v, m}, rank) ==
              2 * (p - rank - 1) + (v - 1) * p + 1);
      }
    }
  }
}

TEST_CASE("a pipeline step is longer than its work by the schedule's bubble") {
  for (const auto& [schedule, shape] : all_cases()) {
    if (shape.micro_batches < shape.ranks) continue;
    INFO(name_of(schedule) << ", " << shape.ranks << " ranks, " << shape.chunks << " chunks, "
                           << shape.micro_batches << " micro-batches");
    const double work = static_cast<double>(shape.micro_batches * shape.chunks) *
                        (kForwardSeconds + kBackwardSeconds);
    CHECK(makespan(pipeline_orders(schedule, shape)) ==
          Approx(work / (1.0 - pipeline_idle_share(shape))));
  }
}

}  // namespace ddp::train
