// What the rows of the key table are written with, for the files that hold them.
#pragma once

#include <limits>
#include <vector>

#include "trainer/config/keys/key_table.h"

/// Field::member of `member`, as in data.path.
#define DDP_MEMBER(member) [](Config& c) -> FieldPointer { return &c.member; }

namespace ddp::train {

inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();
inline constexpr Range kAnyValue{};
inline constexpr Range kAtLeast0{0, kUnbounded};
inline constexpr Range kUpTo1e4{1, 1e4};
inline constexpr Range kUpTo1e6{1, 1e6};
inline constexpr Range kUpTo1e9{1, 1e9};
inline constexpr Range kStepCount{1, 1e15};
inline constexpr Range kStepCountOr0{0, 1e15};
inline constexpr Range kAbove0{0, kUnbounded, true};
inline constexpr Range kShare{0, 1, true};               // above 0, up to 1
inline constexpr Range kProbability{0, 1, false, true};  // from 0, below 1

std::vector<Field> bert_fields();
std::vector<Field> image_fields();

}  // namespace ddp::train
