// The values of an override in a sweep: a=1,2  choice(1,2)  range(1,4)  glob(*)
#pragma once

#include <string>
#include <vector>

#include "trainer/hydra/yaml/tree.h"

namespace ddp::train {

enum class SweepKind { kSimpleChoice, kChoice, kRange, kGlob };

/// A value and its text in an override ("'x y'" with its quotes).
struct SweepItem {
  Node value;
  std::string text;
};

struct Sweep {
  SweepKind kind = SweepKind::kSimpleChoice;
  std::vector<SweepItem> items;               ///< None of kGlob.
  std::vector<std::string> include, exclude;  ///< kGlob
};

/// range(start, stop, step) of numbers: ints if all three are, else floats. Throws
/// std::invalid_argument for a step of 0 and for too many values.
Sweep range_sweep(const Node& start, const Node& stop, const Node& step);

/// The values in their order, each as an override writes it. `options` are the names in the config
/// group, for glob.
std::vector<std::string> sweep_values(const Sweep& sweep, const std::vector<std::string>& options);

/// Returns an override's text of a value: null, True, 1e-05, text with special characters escaped.
std::string override_text(const Node& value);

}  // namespace ddp::train
