// strategy=zero1, zero2 and zero3: who holds what of the training state does not change what is
// learned.
#include "tests/support/catch.h"

#include <nlohmann/json.hpp>

#include "tests/e2e/masked_text.h"
#include "tests/e2e/pictures.h"
#include "tests/e2e/saved_state.h"
#include "tests/e2e/sharded_runs.h"

namespace ddp::test {
namespace {

std::string micro_batches_of_each(int steps) {
  return "trainer_config.grad_accumulation_steps=" + std::to_string(steps);
}

/// On `ranks` ranks each strategy learns what ddp learns.
template <class Place = Workspace>
void check_like_ddp(const Words& strategies, int ranks, const Words& options) {
  std::vector<Divided> sharded;
  for (const std::string& name : strategies)
    sharded.push_back({ranks, under(name), "Strategy: " + name + ", rank 0 updates "});
  check_all_same<Place>(sharded, {ranks, {}}, options);
}

const Words kZero1 = {"zero1"}, kZero2 = {"zero2"}, kZero3 = {"zero3"}, kBoth = {"zero1", "zero3"};
const Words kTinyModel = {"gpt_config.n_embd=2", "gpt_config.n_layer=1",
                          "trainer_config.max_steps=6"};
const Words kFrozenBlocks = {
    "trainer_config.freeze=[\"transformer.wte.*\",\"transformer.wpe.*\",\"transformer.h.0.*\"]"};

}  // namespace

const Words kShardedAveraged = {"trainer_config.ema_decay=0.9", "trainer_config.eval_every_steps=2",
                                "trainer_config.freeze=[\"transformer.h.0.ln_1.*\"]"};

TEST_CASE("zero1 and zero3 learn bit for bit what ddp learns") {
  check_like_ddp(kBoth, 3, kWideModel + kShardedAveraged);
}

TEST_CASE("zero1 and zero3 learn bit for bit what ddp learns, on two and four ranks", "[long]") {
  for (const int ranks : {2, 4}) check_like_ddp(kBoth, ranks, kWideModel + kShardedAveraged);
}

TEST_CASE("a tied table whose rows do not divide is updated on the last rank of zero3, too",
          "[long]") {
  const Words tied = {"gpt_config.tie_weights=true"};
  for (const int ranks : {2, 3, 4}) check_like_ddp(kZero3, ranks, kWideModel + tied);
}

TEST_CASE("zero3 trains what is left of a model whose first blocks and embeddings are frozen",
          "[long]") {
  check_like_ddp(kZero3, 3, kWideModel + kFrozenBlocks);
}

TEST_CASE("zero3 learns the same with blocks that are computed again in the backward pass",
          "[long]") {
  const Workspace kept, again;
  const Words options = kWideModel + under("zero3") + Words{micro_batches_of_each(2)};
  succeed(launched(kept, 3, options));
  succeed(launched(again, 3, options + Words{"gpt_config.activation_checkpointing=true"}));
  CHECK(differences(again.snapshot(), kept.snapshot()) == Words{});
}

TEST_CASE("zero1 and zero3 divide every model, with blocks and without, and learn what ddp learns",
          "[long]") {
  check_like_ddp<LlamaWorkspace>(kBoth, 3, {});
  check_like_ddp<LlamaWorkspace>(kZero3, 2, {"llama_config.activation_checkpointing=true"});
  check_like_ddp<LlamaWorkspace>(
      kZero3, 2,
      {"llama_config.family=gemma2", "llama_config.sliding_window=9",
       "llama_config.full_attention_every=2", "llama_config.final_logit_softcapping=10"});
  check_like_ddp<LlamaWorkspace>(
      {"zero1", "zero2", "zero3"}, 3,
      kOfExperts + Words{"llama_config.activation_checkpointing=true", micro_batches_of_each(2)});
  check_like_ddp<MaskedWorkspace>(kBoth, 3, {"trainer_config.ema_decay=0.9"});
  check_like_ddp<ImageWorkspace>(kBoth, 2,
                                 {"image_config.batch_norm=local", "trainer_config.max_steps=6"});
}

TEST_CASE("zero3 divides the weights below adapters, too", "[long]") {
  const Workspace base;
  succeed(alone(base, kWideModel));
  const Words adapted = {"gpt_config.init_from=" + base.snapshot(), "lora.rank=4"};
  check_like_ddp(kZero3, 3, kWideModel + adapted);
}

TEST_CASE("zero1 adds up micro-batches as ddp does, also where ranks have unequal shares",
          "[long]") {
  check_like_ddp(kZero1, 2, kWideModel + Words{"trainer_config.global_batch_size=12"});
}

TEST_CASE("zero1 and zero3 learn what ddp learns with every optimizer, muon's whole matrices too",
          "[long]") {
  for (const char* name : {"sgd", "adam", "muon"}) {
    const Words optimizer = {std::string("optimizer_config.name=") + name,
                             "optimizer_config.momentum=0.9", "trainer_config.ema_decay=0.5"};
    check_like_ddp(kBoth, 3, kWideModel + optimizer);
  }
}

TEST_CASE("zero1 and zero3 skip the steps whose float16 gradients overflow on one rank only",
          "[long]") {
  check_like_ddp(
      kBoth, 2,
      kWideModel + Words{"trainer_config.use_amp=true", "trainer_config.amp_on_cpu=true",
                         "trainer_config.amp_dtype=fp16", "trainer_config.max_steps=20"});
}

// Few tokens: in float16 the gradient of the output layer, which one rank updates, is too large for
// the first scales, and no other is.
TEST_CASE("an overflow in the shard of one rank keeps all ranks from updating theirs") {
  const Words few_tokens =
      kWideModel + Words{"trainer_config.use_amp=true",   "trainer_config.amp_on_cpu=true",
                         "trainer_config.amp_dtype=fp16", "gpt_config.tie_weights=false",
                         "trainer_config.batch_size=1",   "data_config.block_size=3",
                         "trainer_config.max_steps=10"};
  const Workspace ddp;
  const auto by_ddp = succeed(launched(ddp, 2, few_tokens));
  const Workspace sharded;
  const auto by_sharded = succeed(launched(sharded, 2, few_tokens + under("zero3")));
  check_same_run(sharded, by_sharded.out, ddp, by_ddp.out);
  const auto state = inspect(sharded, sharded.snapshot());
  CHECK(state.at("optimizer_step") < 10);
  CHECK(state.at("optimizer_step") > 0);
}

TEST_CASE("buckets of any size change nothing in what zero1 and zero2 learn", "[long]") {
  for (const char* mib : {"0.001", "0.2"}) {
    check_like_ddp(kZero1, 3,
                   kWideModel + Words{std::string("distributed_config.bucket_cap_mb=") + mib});
  }
  check_like_ddp(kZero2, 3, kWideModel + Words{"distributed_config.bucket_cap_mb=0.1"});
}

TEST_CASE("a model too small to divide trains on ranks that hold nothing of it", "[long]") {
  check_like_ddp(kZero3, 4, kTinyModel);
}

TEST_CASE(
    "a tiny model under muon, and frozen blocks that are computed again, are trained by ranks",
    "[long]") {
  check_like_ddp(kBoth, 4, kTinyModel + Words{"optimizer_config.name=muon"});
  check_like_ddp(kZero3, 2,
                 kWideModel + kFrozenBlocks + Words{"gpt_config.activation_checkpointing=true"});
}

TEST_CASE("through sockets two ranks learn with zero1 and zero3 bit for bit what ddp learns",
          "[long]") {
  check_like_ddp(kBoth, 2, kWideModel + Words{"distributed_config.backend=gloo"});
}

namespace {

/// Strategies and backends learn on `ranks` ranks what one process learns.
void check_sharded_like_one(int ranks,
                            const std::vector<std::pair<std::string, std::string>>& ways) {
  const Words options =
      kWideModel + Words{"trainer_config.ema_decay=0.9", "trainer_config.eval_every_steps=2"};
  const Workspace one;
  succeed(alone(one, options + Words{micro_batches_of_each(2 * ranks)}));
  for (const auto& [name, backend] : ways) {
    INFO(name << " on " << ranks << " ranks, backend " << backend);
    const Workspace sharded;
    succeed(launched(sharded, ranks,
                     options + under(name) +
                         Words{micro_batches_of_each(2), "distributed_config.backend=" + backend}));
    CHECK(differences(sharded.snapshot(), one.snapshot()) == Words{});
  }
}

}  // namespace

TEST_CASE("zero2 and zero3 learn bit for bit what one process learns from as many micro-batches",
          "[long]") {
  check_sharded_like_one(3, {{"zero2", "auto"}, {"zero3", "gloo"}});
}

TEST_CASE("zero2 and zero3 learn what one process learns by memory and by sockets", "[long]") {
  check_sharded_like_one(3, {{"zero2", "gloo"}, {"zero3", "auto"}});
  check_sharded_like_one(
      2, {{"zero2", "auto"}, {"zero2", "gloo"}, {"zero3", "auto"}, {"zero3", "gloo"}});
}

TEST_CASE(
    "zero2 and zero3 learn what one process learns where ranks have a micro-batch less and blocks "
    "are frozen") {
  const Words options = kWideModel + kFrozenBlocks +
                        Words{"trainer_config.global_batch_size=20", "trainer_config.ema_decay=0.9",
                              "trainer_config.eval_every_steps=2"};
  const Workspace one;
  succeed(alone(one, options));
  for (const Words& way : {under("zero2") + Words{"distributed_config.backend=gloo"},
                           under("zero3") + Words{"gpt_config.activation_checkpointing=true"}}) {
    INFO(nlohmann::json(way).dump());
    const Workspace sharded;
    succeed(launched(sharded, 3, options + way));
    CHECK(differences(sharded.snapshot(), one.snapshot()) == Words{});
  }
}

TEST_CASE(
    "NaN in the shard of one rank is a bad step for all, and a rollback restores the shards") {
  const nlohmann::json faults = {"rank=1 step=4 kind=nan"};
  check_like_ddp(kZero3, 2,
                 kWideModel + Words{"trainer_config.fault_plan=" + faults.dump(),
                                    "trainer_config.bad_step_policy=rollback",
                                    "trainer_config.ema_decay=0.9"});
}

TEST_CASE("samples, histograms, replica checks and spikes change nothing in a zero run") {
  const Workspace plain, busy;
  const Words zero = kWideModel + under("zero3") + Words{"trainer_config.ema_decay=0.9"};
  succeed(launched(plain, 2, zero));
  const auto run = succeed(launched(busy, 2, zero + kBusy));
  CHECK_THAT(run.out, Catch::Contains("Sample:"));
  CHECK(content_sha256(busy) == content_sha256(plain));
}

TEST_CASE("one process cannot divide the state, and one rank under ddp-run says that it does not") {
  const Workspace place;
  const auto refused = finish(alone(place, under("zero1")));
  CHECK(refused.exit == 2);
  CHECK(refused.err ==
        "error: distributed_config.strategy=zero1 divides the training state between ranks, and "
        "this is one process; start it with ddp-run --nproc_per_node=N, or remove strategy\n");
  const auto run = succeed(launched(place, 1, kWideModel + under("zero2")));
  CHECK_THAT(run.out, Catch::Contains("one rank has nothing to divide; it trains as with ddp"));
}

}  // namespace ddp::test
