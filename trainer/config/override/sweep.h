// What an override of a sweep stands for: a=1,2  choice(1,2)  range(1,4)  glob(*)
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/config/yaml/tree.h"

namespace ddp::train {

enum class SweepKind { kSimpleChoice, kChoice, kRange, kInterval, kGlob };

/// A value and how it is written in an override ("'x y'" with its quotes).
struct SweepItem {
  Node value;
  std::string text;
};

struct Sweep {
  SweepKind kind = SweepKind::kSimpleChoice;
  std::vector<SweepItem> items;  ///< Choices.
  Node start, stop, step;        ///< kRange: ints or floats; kInterval: start and stop.
  std::vector<std::string> include, exclude;  ///< kGlob
};

/// The values in their order, each as an override writes it. `options` are the names in the config
/// group, for glob. Throws std::invalid_argument for a range without an end.
std::vector<std::string> sweep_values(const Sweep& sweep, const std::vector<std::string>& options);

/// The sweep in ascending or descending order, as Hydra's sort() gives it.
Sweep sorted_sweep(Sweep sweep, bool reverse);

/// A value as an override writes it: null, True, 1e-05, text with its special characters escaped.
std::string override_text(const Node& value);

}  // namespace ddp::train
