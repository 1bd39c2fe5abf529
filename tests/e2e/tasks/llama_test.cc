// model: llama through every mode of trainer.
#include <filesystem>

#include "tests/support/catch.h"

#include "tests/e2e/exact_runs.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Json = nlohmann::json;

const std::string kLlama =
    "model: llama\nllama_config: {n_layer: 2, n_head: 4, n_kv_head: 2, n_embd: 32}\n";

/// One like each kind: Llama 3, SmolLM2, Qwen2, Mistral, Phi-3, Gemma 2, Mixtral and Qwen3.
const std::vector<Words> kKinds = {
    {"llama_config.rope_scaling.rope_type=llama3", "llama_config.rope_scaling.factor=8",
     "llama_config.rope_scaling.original_max_position_embeddings=16"},
    {"llama_config.tie_weights=true"},
    {"llama_config.qkv_bias=true", "llama_config.norm_eps=1e-6"},
    {"llama_config.family=mistral", "llama_config.sliding_window=9"},
    {"llama_config.family=phi3", "llama_config.partial_rotary_factor=0.5"},
    {"llama_config.family=gemma2", "llama_config.sliding_window=9",
     "llama_config.full_attention_every=2", "llama_config.query_pre_attn_scalar=24",
     "llama_config.attn_logit_softcapping=20", "llama_config.final_logit_softcapping=10",
     "llama_config.tie_weights=true"},
    {"llama_config.family=mixtral", "llama_config.n_expert=3"},
    {"llama_config.qk_norm=true", "llama_config.head_dim=16"}};

const Words kQwen3Moe = {"llama_config.family=qwen3_moe", "llama_config.n_expert=4",
                         "llama_config.n_expert_per_token=2", "llama_config.intermediate=24",
                         "llama_config.router_aux_loss_coef=0.1"};

struct LlamaPlace : Workspace {
  LlamaPlace() { write("config.yaml", tiny_text_config(kLlama, "0.01")); }

  std::string greedy(const std::string& model) const {
    return succeed(trainer(*this, {"generate", "--snapshot", model, "--prompt", "the ", "--greedy",
                                   "--max_new_tokens", "50"}))
        .out;
  }
};

/// Returns what the training printed. With `every_way` a run starts from the folder and from the
/// snapshot with either tokenizer.
std::string check_llama_export(const Words& kind, bool every_way) {
  INFO(kind.front());
  const LlamaPlace place;
  const auto trained = succeed(alone(place, kind));
  CHECK_THAT(trained.out, Contains("Model: Llama of 2 layers, 4 heads, 2 key-value heads"));
  succeed(trainer(place, {"export", "--snapshot", "snapshot.pt", "--output", "first"}));
  CHECK(place.greedy("first") == place.greedy("snapshot.pt"));
  succeed(trainer(place, {"export", "--snapshot", "first", "--output", "second"}));
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json"})
    CHECK(read_bytes(place / ("first/" + std::string(file))) ==
          read_bytes(place / ("second/" + std::string(file))));
  const auto inspected = inspect(place, "snapshot.pt");
  const auto estimate = Json::parse(
      succeed(trainer(place, joined({"estimate", "--config", "config.yaml", "--json"}, kind))).out);
  CHECK(inspected.at("parameters") == estimate.at("parameters").at("total"));
  place.write("tune.yaml",
              "model: llama\ndata_config: {path: text.txt, block_size: 32, stride: 32}\n"
              "hydra: {run: {dir: .}}\n");
  // The text is encoded by the tokenizer of the folder or the snapshot, named or not.
  for (const char* from : {"first", "snapshot.pt"}) {
    for (const char* tokenizer : {"data_config.tokenizer=first", "data_config.tokenizer=null"}) {
      if (!every_way && (from == std::string("first")) != std::string(tokenizer).ends_with("first"))
        continue;
      std::filesystem::remove(place / "tuned.pt");
      succeed(trainer(
          place,
          {"--config", "tune.yaml", std::string("llama_config.init_from=") + from, tokenizer,
           "trainer_config.max_steps=1", "trainer_config.batch_size=2",
           "trainer_config.snapshot_path=tuned.pt", "optimizer_config.learning_rate=1e-30"}));
      CHECK(largest_parameter_distance(place.snapshot(), place / "tuned.pt") == 0.0);
    }
  }
  return trained.out;
}

}  // namespace

/// With per-head norms and heads of a width of their own.
const Words& kQwen3 = kKinds.back();

TEST_CASE("two ranks, one of them killed, train a Llama bit for bit as one process does") {
  check_exact<LlamaPlace>(kQwen3, 13);
}

TEST_CASE("experts on two ranks, one of them killed, and under zero3 learn bit for bit the same") {
  check_exact<LlamaPlace>(kQwen3Moe, 13, {"zero3"});
}

TEST_CASE("a model of experts is exported, trained on and logs the loss of its routers") {
  CHECK_THAT(check_llama_export(kQwen3Moe, false), Contains("aux_loss"));
}

TEST_CASE("a Llama is exported, read as a folder, trained on and estimated") {
  check_llama_export(kQwen3, false);
}

TEST_CASE("Llamas of each kind resume, are trained by two ranks and exported", "[long]") {
  for (const Words& kind : kKinds) {
    check_exact<LlamaPlace>(kind, 13);
    check_llama_export(kind, true);
  }
}

}  // namespace ddp::test
