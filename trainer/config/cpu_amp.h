// Decides whether training on a CPU computes in mixed precision.
#pragma once

#include <string>
#include <string_view>

#include "trainer/config/trainer_config.h"

namespace ddp::train {

/// Whether a CPU with these flags (cpu_flags()) multiplies matrices natively in `type`. Others
/// convert every number, which takes much longer than float32.
bool cpu_computes_in(AmpDtype type, std::string_view flags);

/// Settles amp_on_cpu=auto and with it use_amp for a training on a CPU, in place: autocast is on
/// where `has_arithmetic` (cpu_computes_in() its amp_dtype), or as in `before`, the settled section
/// of the run that this one continues (null: none). Returns a warning, or "". Does nothing on a
/// GPU.
std::string settle_amp(TrainerConfig& config, bool has_arithmetic,
                       const TrainerConfig* before = nullptr);

}  // namespace ddp::train
