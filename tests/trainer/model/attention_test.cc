#include "trainer/model/blocks/attention.h"

#include <ATen/SDPBackend.h>

#include "tests/support/catch.h"

namespace ddp::train {
namespace {

using Catch::Contains;

std::string note(at::SDPBackend choice, torch::ScalarType type, int64_t head_size, bool has_mask) {
  return attention_note({static_cast<int64_t>(choice), type, head_size, has_mask});
}

}  // namespace

TEST_CASE("why flash attention was not chosen is said in one line") {
  using at::SDPBackend;
  CHECK(note(SDPBackend::flash_attention, torch::kBFloat16, 64, false).empty());
  CHECK(note(SDPBackend::cudnn_attention, torch::kHalf, 64, true).empty());
  CHECK_THAT(note(SDPBackend::efficient_attention, torch::kFloat32, 64, false),
             Contains("memory-efficient kernel") && Contains("trainer_config.use_amp=true"));
  CHECK_THAT(note(SDPBackend::efficient_attention, torch::kBFloat16, 64, true),
             Contains("takes no mask"));
  CHECK_THAT(note(SDPBackend::math, torch::kBFloat16, 320, false),
             Contains("T x T matrix") && Contains("heads of up to 256"));
  CHECK_THAT(note(SDPBackend::math, torch::kBFloat16, 64, false),
             Contains("compute capability 8.0"));
}

}  // namespace ddp::train
