#include "trainer/config/cpu_amp.h"

#include <fmt/format.h>

#include "trainer/runtime/process/cpu_flags.h"

namespace ddp::train {
namespace {

/// kAuto unless `before` was settled for the same type.
AutoSwitch settled_before(const TrainerConfig& config, const TrainerConfig* before) {
  if (before == nullptr || before->amp_dtype != config.amp_dtype) return AutoSwitch::kAuto;
  const bool used = before->use_amp || before->amp_on_cpu == AutoSwitch::kFalse;
  return used ? before->amp_on_cpu : AutoSwitch::kAuto;
}

std::string warning_of(AmpDtype type, bool on, bool has_arithmetic) {
  if (on && has_arithmetic) return "";
  const std::string lacks = fmt::format("this CPU has no {} arithmetic", name_of(type));
  if (on) {
    return fmt::format(
        "trainer_config.use_amp: the run keeps the autocast it was saved with, although {}, and "
        "float32 would be many times faster; trainer_config.amp_on_cpu=false changes to it",
        lacks);
  }
  if (has_arithmetic) {
    return "trainer_config.use_amp: the run keeps the float32 it was saved with; "
           "trainer_config.amp_on_cpu=true turns autocast on";
  }
  return fmt::format(
      "trainer_config.use_amp: {}, and autocast would be many times slower than float32, so "
      "float32 is used; in training trainer_config.amp_on_cpu=true keeps autocast",
      lacks);
}

}  // namespace

bool cpu_computes_in(AmpDtype type, std::string_view flags) {
  return type == AmpDtype::kBFloat16
             ? has_flag(flags, "avx512_bf16") || has_flag(flags, "amx_bf16") ||
                   has_flag(flags, "bf16")
             : has_flag(flags, "avx512_fp16") || has_flag(flags, "amx_fp16") ||
                   has_flag(flags, "asimdhp");
}

std::string settle_amp(TrainerConfig& config, bool has_arithmetic, const TrainerConfig* before) {
  if (!config.use_amp) return "";
  const bool automatic = config.amp_on_cpu == AutoSwitch::kAuto;
  const AutoSwitch so_far = automatic ? settled_before(config, before) : config.amp_on_cpu;
  config.use_amp = so_far == AutoSwitch::kAuto ? has_arithmetic : so_far == AutoSwitch::kTrue;
  config.amp_on_cpu = config.use_amp ? AutoSwitch::kTrue : AutoSwitch::kFalse;
  return automatic ? warning_of(config.amp_dtype, config.use_amp, has_arithmetic) : "";
}

}  // namespace ddp::train
