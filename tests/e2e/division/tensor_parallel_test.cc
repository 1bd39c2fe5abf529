// distributed_config.tensor: ranks that share the layers of a model learn what one process learns.
#include "tests/support/catch.h"

#include <filesystem>

#include "tests/e2e/logged_losses.h"
#include "tests/e2e/saved_state.h"
#include "tests/e2e/sharded_runs.h"

namespace ddp::test {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

/// Gradients decide the updates' size, as with SGD: Adam makes whole steps of rounding errors where
/// a gradient is 0, as that of the keys' biases is.
const Words kTraining = {"optimizer_config.name=sgd",           "optimizer_config.momentum=0.9",
                         "optimizer_config.learning_rate=0.05", "trainer_config.max_steps=8",
                         "trainer_config.save_every_steps=4",   "trainer_config.eval_every_steps=4",
                         "trainer_config.global_batch_size=16", "trainer_config.batch_size=4"};
/// Four heads of 16.
const Words kModel = kTraining + Words{"gpt_config.n_head=4", "gpt_config.n_embd=64"};

Words autocast_to(const std::string& type) {
  return {"trainer_config.use_amp=true", "trainer_config.amp_on_cpu=true",
          "trainer_config.amp_dtype=" + type};
}

struct Way {
  int ranks = 1;
  int tensor = 1;
  bool by_sequence = false;
};

std::string text_of(const Way& way) {
  return std::to_string(way.ranks) + " ranks, tensor=" + std::to_string(way.tensor) +
         (way.by_sequence ? ", by sequence" : "");
}

Words words_of(const Way& way) { return shared_by(way.tensor, way.by_sequence); }

Finished run(const Workspace& place, const Way& way, const Words& overrides) {
  return succeed(launched(place, way.ranks, overrides + words_of(way)));
}

/// How many each evaluation was of.
Words evaluated_tokens(const std::string& output) {
  Words tokens;
  for (const std::string& evaluation : evaluations_of(output))
    tokens.push_back(evaluation.substr(evaluation.rfind('|')));
  return tokens;
}

/// Each way, with dropout, learns what one process learns.
template <class Place = Workspace>
void check_like_one(const std::vector<Way>& ways, const Words& overrides, double margin) {
  const Place one;
  const auto by_one = succeed(alone(one, overrides));
  for (const Way& way : ways) {
    INFO(text_of(way));
    const Place shared;
    const auto by_ranks = run(shared, way, overrides);
    CHECK_THAT(by_ranks.out, Contains("Tensor parallel: " + std::to_string(way.tensor) +
                                      " ranks share each layer"));
    CHECK(evaluated_tokens(by_ranks.out) == evaluated_tokens(by_one.out));
    check_near(logged_losses(by_ranks.out), logged_losses(by_one.out), margin);
    CHECK(largest_parameter_distance(shared.snapshot(), one.snapshot()) < margin);
  }
}

}  // namespace

const Words kSharedAveraged = kModel + Words{"trainer_config.ema_decay=0.9",
                                             "trainer_config.freeze=[\"transformer.h.0.ln_1.*\"]"};

TEST_CASE("ranks that share layers learn what one process learns, with its dropout masks") {
  check_like_one({{4, 2}, {2, 2, true}}, kSharedAveraged, 1e-4);
}

TEST_CASE("any number of ranks that share layers learns what one process learns", "[long]") {
  check_like_one({{2, 2}, {4, 4}, {4, 2, true}}, kSharedAveraged, 1e-4);
  check_like_one<LlamaWorkspace>({{2, 2}, {4, 2}, {2, 2, true}}, kTraining, 1e-4);
  for (const char* type : {"bf16", "fp16"})
    check_like_one({{2, 2}, {2, 2, true}}, kModel + autocast_to(type), 0.05);
  check_like_one<LlamaWorkspace>({{2, 2}}, kTraining + kOfExperts, 1e-4);
}

TEST_CASE("three ranks that share layers learn what one process learns", "[long]") {
  check_like_one({{3, 3}, {3, 3, true}},
                 kModel + Words{"gpt_config.n_head=6", "gpt_config.n_embd=96",
                                "data_config.block_size=33", "gpt_config.tie_weights=true"},
                 1e-4);
}

TEST_CASE("they learn it with a tied head, blocks computed again and a loss in chunks", "[long]") {
  check_like_one(
      {{2, 2, true}},
      kModel + Words{"gpt_config.tie_weights=true", "gpt_config.activation_checkpointing=true",
                     "gpt_config.loss_chunk_size=24", "gpt_config.fused_cpu_kernels=false"},
      1e-4);
}

TEST_CASE("ranks that share the layers of a Llama learn its text as one process does") {
  // torch's attention and recomputed blocks, with biases.
  check_like_one<LlamaWorkspace>(
      {{2, 2}},
      kTraining + Words{"llama_config.n_embd=48", "llama_config.activation_checkpointing=true",
                        "llama_config.qkv_bias=true", "llama_config.tie_weights=true"},
      1e-4);
}

TEST_CASE("ranks that share each expert learn what one process learns", "[long]") {
  check_like_one<LlamaWorkspace>({{2, 2, true}}, kTraining + kOfExperts, 1e-4);
}

TEST_CASE("zero1 divides the optimizer's state of ranks that share layers, and learns the same") {
  const Words adamw =
      kModel + Words{"optimizer_config.name=adamw", "optimizer_config.momentum=auto",
                     "trainer_config.ema_decay=0.9"};
  const Workspace ddp, zero;
  const auto by_ddp = run(ddp, {4, 2}, adamw);
  const auto by_zero = run(zero, {4, 2}, adamw + under("zero1"));
  CHECK(differences(zero.snapshot(), ddp.snapshot()) == Words{});
  CHECK(content_sha256(zero) == content_sha256(ddp));
  CHECK(steps_of(by_zero.out) == steps_of(by_ddp.out));
}

TEST_CASE("what ranks that share layers have learned is evaluated, sampled and exported by one") {
  const Workspace shared, one;
  const Words sampled =
      kModel + Words{"trainer_config.sample_every_steps=8", "trainer_config.sample_tokens=20"};
  run(shared, {2, 2, true}, sampled);
  succeed(alone(one, sampled));
  // Sampled from the weights of the end, which are one process's but for rounding.
  const auto text_in = [](const Workspace& place) {
    return nlohmann::json::parse(read_bytes(place / "samples.jsonl")).at("text");
  };
  CHECK(text_in(shared) == text_in(one));
  const auto evaluated = succeed(trainer(shared, {"eval", "--snapshot", "snapshot.pt"}));
  CHECK_THAT(evaluated.out, Contains("perplexity"));
  succeed(trainer(shared, {"generate", "--snapshot", "snapshot.pt", "--prompt", "the",
                           "--max_new_tokens", "5"}));
  succeed(trainer(shared, {"export", "--snapshot", "snapshot.pt", "--output", "exported"}));
}

TEST_CASE("what ranks that share layers both hold is compared between them") {
  const Workspace place;
  const auto failed = finish(launched(
      place, 2,
      kModel + words_of({2, 2}) +
          Words{"gpt_config.tie_weights=true", "trainer_config.check_replicas_every_steps=1",
                R"(trainer_config.fault_plan=["rank=1 step=5 kind=drift"])"}));
  CHECK(failed.exit == 1);
  CHECK_THAT(failed.err,
             Contains("step 5: the replicas differ: model.transformer.ln_f.bias of rank 1 is not"));
}

}  // namespace ddp::test
