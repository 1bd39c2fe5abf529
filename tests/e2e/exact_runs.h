// The promise that every task, model and form of data keeps: neither ranks nor kills change a bit.
#pragma once

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/e2e/faults.h"

namespace ddp::test {

/// The matrices of confusion.jsonl's last line, or null where the task has none.
inline nlohmann::json last_confusions(const Workspace& place) {
  const auto lines = lines_of(read_bytes(place / "confusion.jsonl"));
  return lines.empty() ? nlohmann::json() : nlohmann::json::parse(lines.back()).at("counts");
}

/// Two runs in which a step may be printed again end alike, and report the same numbers.
inline void check_same_log(const Workspace& one, const Workspace& other) {
  CHECK(differences(one.snapshot(), other.snapshot()) == Words{});
  CHECK(steps_of(log_of(other)) == steps_of(log_of(one)));
  const auto evaluations = [](const Workspace& place) {
    const Words all = evaluations_of(log_of(place));
    return std::set<std::string>(all.begin(), all.end());
  };
  CHECK(evaluations(one) == evaluations(other));
  CHECK(last_confusions(one) == last_confusions(other));
}

/// Two ranks, one of which is killed in step `killed_in`, and two under each of `strategies` end
/// bit for bit as one process with two micro-batches, each in a Place(args...).
template <class Place, class... Args>
void check_exact(const Words& options, int killed_in, const Words& strategies = {},
                 const Args&... args) {
  INFO(nlohmann::json(options).dump());
  const Place one(args...), two(args...);
  succeed(alone(one, joined(options, {"trainer_config.grad_accumulation_steps=2"})));
  const auto job = succeed(launched(
      two, 2,
      joined(options,
             {plan_of({fmt::format("rank=1 step={} phase=backward kind=kill", killed_in)})}),
      kTwentyRestarts));
  CHECK_THAT(job.err, Catch::Contains("FAULT INJECTION: kill"));
  check_same_log(one, two);
  for (const std::string& name : strategies) {
    INFO(name);
    const Place divided(args...);
    succeed(launched(divided, 2, joined(options, {"distributed_config.strategy=" + name})));
    check_same_log(one, divided);
  }
}

}  // namespace ddp::test
