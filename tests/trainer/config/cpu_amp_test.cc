// Whether autocast is on on a CPU: decided from its flags and the run's past, without a CPU.
#include "trainer/config/cpu_amp.h"

#include "tests/support/catch.h"

namespace ddp::train {
namespace {

using Catch::Contains;

TrainerConfig amp(AmpDtype type, AutoSwitch on_cpu = AutoSwitch::kAuto) {
  TrainerConfig config;
  config.use_amp = true;
  config.amp_dtype = type;
  config.amp_on_cpu = on_cpu;
  return config;
}

TrainerConfig settled(TrainerConfig config, bool has_arithmetic,
                      const TrainerConfig* before = nullptr) {
  settle_amp(config, has_arithmetic, before);
  return config;
}

}  // namespace

TEST_CASE("a CPU computes in a 16-bit type if it has an instruction for it") {
  CHECK(cpu_computes_in(AmpDtype::kBFloat16, " fma avx512f avx512_bf16"));
  CHECK(cpu_computes_in(AmpDtype::kBFloat16, "amx_bf16 amx_tile"));
  CHECK_FALSE(cpu_computes_in(AmpDtype::kBFloat16, " avx512f avx512_fp16 not_amx_bf16 amx_bf16s"));
  CHECK(cpu_computes_in(AmpDtype::kFloat16, " avx512_fp16 avx2"));
  CHECK(cpu_computes_in(AmpDtype::kFloat16, " amx_fp16"));
  CHECK_FALSE(cpu_computes_in(AmpDtype::kFloat16, " f16c avx512_bf16 amx_bf16"));
  CHECK_FALSE(cpu_computes_in(AmpDtype::kFloat16, ""));
}

TEST_CASE("on a CPU autocast is on by itself where the CPU has the arithmetic, else by name") {
  for (const auto type : {AmpDtype::kFloat16, AmpDtype::kBFloat16}) {
    for (const bool can : {false, true}) {
      CHECK(settled(amp(type), can).use_amp == can);
      CHECK(settled(amp(type, AutoSwitch::kTrue), can).use_amp);
      CHECK_FALSE(settled(amp(type, AutoSwitch::kFalse), can).use_amp);
    }
  }
  CHECK(settled(amp(AmpDtype::kFloat16), false).amp_on_cpu == AutoSwitch::kFalse);
  CHECK(settled(amp(AmpDtype::kFloat16), true).amp_on_cpu == AutoSwitch::kTrue);
  CHECK(settled({}, true).amp_on_cpu == AutoSwitch::kAuto);  // use_amp=false: nothing to settle
}

TEST_CASE("only a choice against use_amp that the user did not make is warned of") {
  TrainerConfig config = amp(AmpDtype::kFloat16);
  CHECK_THAT(settle_amp(config, false),
             Contains("this CPU has no float16 arithmetic") &&
                 Contains("trainer_config.amp_on_cpu=true keeps autocast"));
  CHECK(settle_amp(config, false) == "");
  for (const auto choice : {AutoSwitch::kTrue, AutoSwitch::kFalse}) {
    config = amp(AmpDtype::kFloat16, choice);
    CHECK(settle_amp(config, false) == "");
  }
  config = amp(AmpDtype::kBFloat16);
  CHECK(settle_amp(config, true) == "");
}

TEST_CASE("a run that continues on another CPU keeps the precision it has, unless told otherwise") {
  const auto type = AmpDtype::kFloat16;
  const TrainerConfig with = settled(amp(type), true), without = settled(amp(type), false);
  for (const bool can : {false, true}) {
    CHECK(settled(amp(type), can, &with).use_amp);
    CHECK_FALSE(settled(amp(type), can, &without).use_amp);
    CHECK_FALSE(settled(amp(type, AutoSwitch::kFalse), can, &with).use_amp);
    CHECK(settled(amp(type, AutoSwitch::kTrue), can, &without).use_amp);
    // For another type, on a GPU, or without use_amp: nothing to keep.
    CHECK(settled(amp(AmpDtype::kBFloat16), can, &with).use_amp == can);
    const TrainerConfig of_gpu = amp(type), plain;
    CHECK(settled(amp(type), can, &of_gpu).use_amp == can);
    CHECK(settled(amp(type), can, &plain).use_amp == can);
  }
  TrainerConfig config = amp(type);
  CHECK_THAT(settle_amp(config, false, &with), Contains("keeps the autocast it was saved with"));
  config = amp(type);
  CHECK_THAT(settle_amp(config, true, &without), Contains("keeps the float32 it was saved with"));
}

}  // namespace ddp::train
