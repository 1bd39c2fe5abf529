// A task's texts for users during training: lines for the log, samples, the next command.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/length_counts.h"

namespace ddp::train {

class TaskReport {
 public:
  virtual ~TaskReport() = default;

  /// Lines about model and data for the start of the log.
  virtual std::vector<std::string> describe() const = 0;
  /// The lines of describe() about the data; they need no model.
  virtual std::vector<std::string> describe_data() const { return {}; }
  /// The lengths of the training texts in tokens, before they were cut; empty if there are none.
  virtual LengthCounts lengths() const { return {}; }
  /// Returns warnings of this rank since the last call, such as samples left out.
  virtual std::vector<std::string> take_warnings() { return {}; }
  /// Generates text with the current model, from random numbers that depend on `seed` alone. For
  /// one rank: leaves the model's mode and torch's generators as they were. Returns nullopt if the
  /// task generates nothing, or if `go_on`, which is asked repeatedly, returned false.
  virtual std::optional<std::string> sample(uint64_t /*seed*/,
                                            const std::function<bool()>& /*go_on*/) {
    return std::nullopt;
  }
  /// The command to try on a trained snapshot.
  virtual std::string next_command(const std::string& snapshot) const {
    return "trainer eval --snapshot " + snapshot;
  }
};

}  // namespace ddp::train
