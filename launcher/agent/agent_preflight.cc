// --preflight: this node is checked before it joins its first round, and after a crash on it.
#include <fmt/format.h>

#include "launcher/agent/agent.h"
#include "launcher/base/text.h"

namespace ddp::launch {
namespace {

// Drivers may take their time when the node has just booted. Later, the other nodes are waiting.
constexpr std::chrono::minutes kFirstLimit{5};
constexpr std::chrono::seconds kLaterLimit{10};
// With fixed ranks the others are notified through the first node, which may be unreachable.
constexpr std::chrono::seconds kTellLimit{10};

}  // namespace

void LocalElasticAgent::begin_check() {
  phase_ = Phase::kChecking;
  const std::chrono::milliseconds limit =
      ever_started_ ? std::chrono::milliseconds(kLaterLimit) : kFirstLimit;
  deadline_ = processes_.now() + limit;
  WorkerSpec spec;
  spec.command = plan_.preflight->command;
  spec.environment = plan_.preflight->environment;
  try {
    processes_.start_check(spec);
  } catch (const LaunchError& error) {
    fail_check(error.what());
  }
}

void LocalElasticAgent::absorb_check(const Event& event) {
  if (phase_ != Phase::kChecking || verdict_ || !unfit_.empty()) return;
  processes_.sweep(/*at_end=*/false);  // what it has left behind
  if (event.exit.ok()) return join();
  const std::string what = event.exit.signal != 0 ? describe_exit(event.exit)
                                                  : fmt::format("exited with {}", event.exit.code);
  fail_check(event.cause.empty() ? what : fmt::format("{}: {}", what, event.cause));
}

void LocalElasticAgent::watch_check() {
  if (phase_ != Phase::kChecking || verdict_ || suspended_ || processes_.turn_began() < *deadline_)
    return;
  if (!unfit_.empty()) {
    verdict_ = failed_end(unfit_);
    return;
  }
  processes_.sweep(/*at_end=*/false);
  fail_check(fmt::format(
      "did not end within {}",
      seconds_text(ever_started_ ? std::chrono::milliseconds(kLaterLimit) : kFirstLimit)));
}

void LocalElasticAgent::fail_check(const std::string& why) {
  unfit_ = fmt::format("preflight failed on {}: {} {}", plan_.host, plan_.preflight->shown, why);
  deadline_ = processes_.now() + kTellLimit;
  rendezvous_.withdraw(unfit_);
}

}  // namespace ddp::launch
