#include "trainer/model/cost/training_cost.h"
#include "trainer/config/config.h"

#include "tests/support/catch.h"

#include "trainer/model/cost/tensor_cost.h"
#include "trainer/model/gpt/gpt_architecture.h"

namespace ddp::train {
namespace {

GptConfig preset(const std::string& name, bool tied) {
  GptConfig gpt;
  for (const ModelPreset& candidate : gpt_presets()) {
    if (candidate.name != name) continue;
    gpt.n_layer = candidate.n_layer;
    gpt.n_head = candidate.n_head;
    gpt.n_embd = candidate.n_embd;
  }
  gpt.tie_weights = tied;
  return gpt;
}

int64_t bytes_of(const Config& config, const std::string& name, const ComputePlace& place = {}) {
  for (const MemoryItem& item : memory_items(config, 50257, place)) {
    if (item.name == name) return item.bytes;
  }
  return 0;
}

/// Bucket bytes of a training with so many bytes of activations and logits.
int64_t buckets_of(const Config& config, const ComputePlace& place, int64_t activations = 0,
                   int64_t logits = 0) {
  for (const MemoryItem& item :
       rank_items(config, shapes_of(gpt_layout(config.gpt, 50257, 1024)), place,
                  {{"activations", activations}, {"logits", logits}})) {
    if (item.name == "gradient_buckets") return item.bytes;
  }
  return 0;
}

Config gpt2_config() {
  Config config;
  config.gpt = preset("gpt2", true);
  config.data.block_size = 1024;
  config.trainer.batch_size = 8;
  return config;
}

}  // namespace

TEST_CASE("parameters are those of minGPT's presets") {
  CHECK(elements_of(gpt_layout(preset("gpt2", true), 50257, 1024)) == 124'439'808);
  CHECK(elements_of(gpt_layout(preset("gpt2", false), 50257, 1024)) == 163'037'184);
  CHECK(elements_of(gpt_layout(preset("gpt2-xl", true), 50257, 1024)) == 1'557'611'200);
  CHECK(elements_of(gpt_layout(preset("gpt-mini", false), 65, 128)) == 2'719'104);
}

TEST_CASE("the state of training takes 16 bytes per parameter with AdamW, less with others") {
  const Config config = gpt2_config();
  CHECK(bytes_of(config, "weights") + bytes_of(config, "gradients") +
            bytes_of(config, "optimizer") ==
        int64_t{16} * 124'439'808);
  CHECK(bytes_of(config, "ddp_buckets", {false, 2}) == 0);
  Config other = config;
  other.optimizer.name = OptimizerName::kSgd;
  CHECK(bytes_of(other, "optimizer") == 0);
  other.optimizer.momentum = {false, 0.9};
  CHECK(bytes_of(other, "optimizer") == int64_t{4} * 124'439'808);
  other.optimizer.name = OptimizerName::kMuon;
  CHECK(bytes_of(other, "optimizer") ==
        int64_t{8} * 124'439'808 - int64_t{4} * 12 * 12 * 768 * 768);
  Config in_8_bits = config;
  in_8_bits.optimizer.state_bits = StateBits::k8;
  const auto bytes = static_cast<double>(bytes_of(in_8_bits, "optimizer"));
  CHECK(bytes / 124'439'808 == Approx(2.0 + 8.0 / 256).margin(0.01));
  Config own = config;
  own.distributed.gradient_as_bucket_view = false;
  CHECK(bytes_of(own, "ddp_buckets", {false, 2}) == int64_t{4} * 124'439'808);
  CHECK(bytes_of(own, "ddp_buckets", {false, 1}) == 0);
}

TEST_CASE("frozen parameters take no gradients, no optimizer state and no averages") {
  Config config = gpt2_config();
  config.trainer.ema_decay = 0.99;
  config.trainer.freeze = {"transformer.wte.*"};
  config.optimizer.param_groups.emplace_back();
  config.optimizer.param_groups[0].patterns = {"transformer.h.0.*", "transformer.wpe.*"};
  config.optimizer.param_groups[0].frozen = true;
  const int64_t all = 124'439'808;
  const int64_t block = 12 * 768 * 768 + 13 * 768;
  const int64_t trained = all - int64_t{50257} * 768 - int64_t{1024} * 768 - block;
  CHECK(bytes_of(config, "weights") == 4 * all);
  CHECK(bytes_of(config, "gradients") == 4 * trained);
  CHECK(bytes_of(config, "optimizer") == 8 * trained);
  CHECK(bytes_of(config, "averaged_weights") == 4 * trained);
  CHECK(bytes_of(config, "snapshot_copy") == 4 * all + 12 * trained);
}

TEST_CASE("one GPU's gradients take the place of activations if one backward pass makes them") {
  Config config = gpt2_config();
  config.trainer.global_batch_size.reset();
  const auto needed = [&](const ComputePlace& place) {
    return bytes_of_rank(memory_items(config, 50257, place), place.cuda);
  };
  const ComputePlace gpu{true, 1};
  const int64_t without = needed(gpu), gradients = bytes_of(config, "gradients", gpu);
  CHECK(gradients == int64_t{4} * 124'439'808);
  CHECK(needed({true, 2}) == without + gradients);  // in DDP's buckets
  config.trainer.grad_accumulation_steps = 2;
  CHECK(needed(gpu) == without + gradients);
  config.trainer.grad_accumulation_steps = 1;
  config.logging.histogram_every_steps = 10;
  CHECK(needed(gpu) == without + gradients);
  config.logging.histogram_every_steps.reset();
  config.trainer.batch_size = 1;
  config.data.block_size = 16;  // fewer activations than gradients
  const int64_t of_passes = bytes_of(config, "activations", gpu) + bytes_of(config, "logits", gpu);
  CHECK(of_passes < gradients);
  CHECK(needed({true, 2}) - needed(gpu) == of_passes);
}

TEST_CASE("zero1 and zero2 divide the optimizer's state and the gradients among the ranks") {
  Config config = gpt2_config();
  config.trainer.ema_decay = 0.99;
  config.distributed.gradient_as_bucket_view = false;
  const int64_t all = 124'439'808;
  const int64_t bucket = 25 * 1024 * 1024;
  const int64_t buckets = 3 * bucket + int64_t{4} * 50257 * 768;  // and the largest parameter
  const ComputePlace four{false, 4};
  for (const Strategy strategy : {Strategy::kZero1, Strategy::kZero2}) {
    config.distributed.strategy = strategy;
    CHECK(bytes_of(config, "weights", four) == 4 * all);
    CHECK(bytes_of(config, "gradients", four) == all);
    CHECK(bytes_of(config, "optimizer", four) == 2 * all);
    CHECK(bytes_of(config, "averaged_weights", four) == all);
    CHECK(bytes_of(config, "ddp_buckets", four) == 0);
    CHECK(buckets_of(config, four) == buckets);
    CHECK(bytes_of(config, "snapshot_copy", four) == 4 * all);  // each rank copies its part
    CHECK(bytes_of(config, "optimizer", {false, 1}) == 8 * all);
    CHECK(buckets_of(config, {false, 1}) == 0);
  }
}

TEST_CASE("with several micro-batches zero1 keeps full gradients, zero2 those of a bucket") {
  Config config = gpt2_config();
  const ComputePlace four{false, 4};
  const int64_t all = 124'439'808;
  const auto gradients = [&](Strategy strategy) {
    config.distributed.strategy = strategy;
    return buckets_of(config, four);
  };
  const int64_t buckets = gradients(Strategy::kZero2);
  CHECK(gradients(Strategy::kZero1) == buckets);
  config.trainer.grad_accumulation_steps = 2;
  const int64_t tables = 2 * 25 * 1024 * 1024;
  CHECK(gradients(Strategy::kZero1) == 4 * all + tables);
  CHECK(gradients(Strategy::kZero2) == buckets);
  config.trainer.grad_accumulation_steps = 1;
  config.trainer.global_batch_size = 8 * 5;  // five micro-batches: two for one of the ranks
  CHECK(gradients(Strategy::kZero1) == 4 * all + tables);
  config.trainer.global_batch_size = 8 * 4;
  CHECK(gradients(Strategy::kZero1) == buckets);
  config.distributed.bucket_cap_mb = 10'000;  // never more than all gradients in each
  CHECK(gradients(Strategy::kZero2) == 3 * 4 * all);
}

TEST_CASE("gradients in the buckets of zero1 and zero2 take the place of activations and logits") {
  Config config = gpt2_config();
  config.distributed.strategy = Strategy::kZero1;
  const ComputePlace four{false, 4};
  const int64_t all = 124'439'808;
  const int64_t bucket = 25 * 1024 * 1024;
  const int64_t table = int64_t{4} * 50257 * 768;
  // With each bucket of gradients as many bytes of activations go.
  CHECK(buckets_of(config, four, 4 * all) == bucket + table);
  CHECK(buckets_of(config, four, 4 * all, bucket) == table);
  CHECK(buckets_of(config, four, 4 * all, bucket + table) == 0);
  config.trainer.grad_accumulation_steps = 2;  // full gradients are there before the last forward
  CHECK(buckets_of(config, four, 4 * all) == 4 * all + bucket);
  CHECK(buckets_of(config, four, 4 * all, bucket) == 4 * all);
}

TEST_CASE("zero3 divides the weights, too, and collects those of two blocks or of the rest") {
  Config config = gpt2_config();
  config.distributed.strategy = Strategy::kZero3;
  const int64_t all = 124'439'808;
  const int64_t block = 12 * 768 * 768 + 13 * 768;
  const int64_t table = int64_t{50257} * 768;
  const ComputePlace four{false, 4};
  CHECK(bytes_of(config, "weights", four) == all);
  CHECK(bytes_of(config, "gradients", four) == all);
  CHECK(bytes_of(config, "optimizer", four) == 2 * all);
  const int64_t root = all - 12 * block;  // at the end, with the gradients of the tied table
  CHECK(bytes_of(config, "collected_weights", four) == 4 * root);
  CHECK(bytes_of(config, "gradient_buckets", four) == 4 * (root + 2 * table));
  Config wide = config;
  wide.gpt.n_embd = 12'800;
  wide.gpt.n_layer = 2;
  const int64_t width = wide.gpt.n_embd;
  const int64_t large = 12 * width * width + 13 * width;
  CHECK(bytes_of(wide, "collected_weights", four) == 4 * 2 * large);
  CHECK(bytes_of(wide, "gradient_buckets", four) ==
        4 * (50257 * width + large + 4 * width * width));
  CHECK(bytes_of(config, "collected_weights", {false, 1}) == 0);
  CHECK(bytes_of(config, "weights", {false, 1}) == 4 * all);
}

TEST_CASE("zero2 leaves frozen parameters whole and without gradients") {
  Config config = gpt2_config();
  config.distributed.strategy = Strategy::kZero2;
  config.trainer.freeze = {"transformer.wte.*"};
  const int64_t all = 124'439'808;
  const int64_t trained = all - int64_t{50257} * 768;
  CHECK(bytes_of(config, "weights", {false, 2}) == 4 * all);
  CHECK(bytes_of(config, "gradients", {false, 2}) == 2 * trained);
  CHECK(bytes_of(config, "optimizer", {false, 2}) == 4 * trained);
  CHECK(buckets_of(config, {false, 2}) == 3 * 25 * 1024 * 1024 + 4 * 4 * 768 * 768);
}

TEST_CASE("checkpointed blocks and a chunked loss take a fraction of the memory") {
  Config config = gpt2_config();
  const int64_t activations = bytes_of(config, "activations");
  config.gpt.activation_checkpointing = true;
  CHECK(bytes_of(config, "activations") < activations / 5);
  config.gpt.loss_chunk_size = {false, 0.0};
  const int64_t all = bytes_of(config, "logits");
  CHECK(all == int64_t{3} * 4 * 8 * 1024 * 50257);
  config.gpt.loss_chunk_size = {};
  CHECK(bytes_of(config, "logits") < all / 5);
}

TEST_CASE("a stage of a pipeline holds the adapters of its own blocks") {
  Config config = gpt2_config();
  config.distributed.pipeline = 2;
  config.trainer.grad_accumulation_steps = 2;
  const auto gradients = [&](int64_t stage) {
    return bytes_of(config, "gradients", {false, 2, stage});
  };
  constexpr int64_t kOfLayer = 4 * 8 * (768 + 3 * 768);
  config.lora = {.rank = 8, .targets = {"c_attn"}};
  CHECK(gradients(0) % kOfLayer == 0);
  CHECK(gradients(0) + gradients(1) == 12 * kOfLayer);
  config.lora.targets = {"h.0.attn.c_attn"};
  CHECK(gradients(0) == kOfLayer);
  CHECK(gradients(1) == 0);
}

TEST_CASE("virtual tokens take activations, and have no logits") {
  Config config = gpt2_config();
  config.gpt.loss_chunk_size = {false, 0.0};
  const int64_t logits = bytes_of(config, "logits"), activations = bytes_of(config, "activations");
  config.data.block_size -= 24;
  const int64_t fewer = bytes_of(config, "logits");
  CHECK(fewer < logits);
  config.prompt_tuning.tokens = 24;
  CHECK(bytes_of(config, "logits") == fewer);
  CHECK(bytes_of(config, "activations") >= activations);
}

}  // namespace ddp::train
