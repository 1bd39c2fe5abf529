// Faults injected on purpose, to prove that a run survives them: what, on which rank, where.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/health/phase.h"

namespace ddp::train {

enum class FaultKind {
  kKill,      ///< SIGKILL to itself.
  kAbort,     ///< SIGABRT, as a failed assertion does.
  kExit,      ///< Ends with the exit code `value` (default 1).
  kStop,      ///< SIGSTOP: the process is stopped.
  kHang,      ///< Waits forever in this phase.
  kSlow,      ///< Sleeps `value` milliseconds in this phase, in this step and every later one.
  kNan,       ///< The loss of this step becomes NaN on this rank, and so do its gradients.
  kNanHere,   ///< The norm of this step's gradients becomes NaN on this rank alone.
  kDiskFull,  ///< Saves of this step fail as on a full disk.
  kCorrupt,   ///< A bit of the snapshot of this step is flipped after it was published.
  kDrift,     ///< After this step a number of the last parameter differs in its last bit.
};

/// Happens once: in attempt `attempt` (TORCHELASTIC_RESTART_COUNT) only.
struct Fault {
  int rank = 0;
  int64_t step = 0;  ///< The current optimizer step, from 1; for a save: the step saved.
  Phase phase = Phase::kForward;
  FaultKind kind = FaultKind::kKill;
  int attempt = 0;
  int64_t value = 0;
};

/// `rank=1 step=12 phase=backward kind=kill [attempt=0] [value=50]`; rank and attempt default to 0,
/// phase to what fits the kind. Throws UserError with the word and the known ones.
Fault parse_fault(const std::string& text);

/// The faults of one rank in one attempt. If there are none, at() costs a comparison.
class FaultPlan {
 public:
  FaultPlan() = default;
  /// `texts` from the configuration, and those of DDP_FAULT_PLAN (separated by `;`).
  FaultPlan(const std::vector<std::string>& texts, int rank, int attempt);

  bool empty() const { return faults_.empty(); }
  /// Returns one line for each fault of this rank, for the start of the log.
  std::vector<std::string> descriptions() const;

  /// Commits the faults planned for this moment; most kinds do not return. Thread-safe.
  void at(Phase phase, int64_t step) const;
  /// Whether a fault of a kind that others commit (kNan, kNanHere, kDiskFull, kCorrupt, kDrift) is
  /// planned.
  bool plans(FaultKind kind, int64_t step) const;

 private:
  std::vector<Fault> faults_;
};

}  // namespace ddp::train
