// lora and prompt_tuning: what is trained next to a frozen pretrained model, through every mode.
#include <filesystem>

#include "tests/support/catch.h"

#include "tests/e2e/exact_runs.h"
#include "tests/e2e/reviews.h"
#include "tests/e2e/unbroken.h"

namespace ddp::test {
namespace {

using Catch::Contains;

/// The base is in base.pt.
const std::string kGptAdapters = "model: gpt\ngpt_config: {init_from: base.pt}\n";
const std::string kLlamaAdapters = "model: llama\nllama_config: {init_from: base.pt}\n";
const std::string kLora = "lora: {rank: 4, dropout: 0.1}\n";
/// With the text's 32 tokens as many positions as the base has.
const std::string kPrompt = "prompt_tuning: {tokens: 5, text: the old}\n";

const std::string kLoraAndTokens = kLora + "# and two tokens that the base lacks\n";

/// The base may have been trained in another folder, which no longer exists.
const Words kOnText = {"--data", "text.txt"};

struct LoraPlace : Workspace {
  explicit LoraPlace(const std::string& model, const std::string& adapters = kLora,
                     const std::string& quantize = "none")
      : gpt(model.starts_with("model: gpt")) {
    const bool quantized = quantize != "none";
    const bool adds_tokens = adapters == kLoraAndTokens;
    std::string config = tiny_text_config(model, "0.01") + adapters +
                         (quantized ? "quantize: {base: " + quantize + "}\n" : "");
    Words base = {"~" + adapters.substr(0, adapters.find(':')), "data_config.block_size=37",
                  "trainer_config.snapshot_path=base.pt", "trainer_config.max_steps=2"};
    if (adds_tokens) {
      config.replace(config.find("stride: 32}"), 11,
                     "stride: 32, add_tokens: [the old, ran Karl]}");
      succeed(trainer(*this, {"tokenize", "--tokenizer", "bpe", "--train", "--vocab_size", "300",
                              "--input", "text.txt", "--output", "tokenizer"}));
      base.insert(base.end(), {"~data_config.add_tokens", "data_config.tokenizer=tokenizer"});
    }
    write("config.yaml", config);
    if (quantized) base.push_back("~quantize");
    const std::string section = gpt ? "gpt_config" : "llama_config";
    for (const char* size : {".init_from=null", ".n_layer=2", ".n_head=2"})
      base.push_back(section + size);
    base.push_back(section + (quantized ? ".n_embd=64" : ".n_embd=32"));
    if (quantized && !gpt) base.push_back(section + ".intermediate=128");
    run_once(*this, alone(*this, base));
  }

  std::string greedy(const std::string& model) const {
    return succeed(trainer(*this, {"generate", "--snapshot", model, "--prompt", "the ", "--greedy",
                                   "--max_new_tokens", "50"}))
        .out;
  }
  double loss(const std::string& snapshot, const Words& more = {}) const {
    const auto report =
        succeed(trainer(*this, joined({"eval", "--snapshot", snapshot, "--json"}, more)));
    return Json::parse(report.out).at("loss");
  }

  bool gpt;
};

void check_exact_adapters(const std::string& model, const std::string& adapters,
                          const Words& strategies) {
  check_exact<LoraPlace>({"trainer_config.ema_decay=0.9"}, 13, strategies, model, adapters);
}

void check_quantized_base(const std::string& model, const std::string& format) {
  check_exact<LoraPlace>({}, 13, {"zero3"}, model, kLora, format);
  const LoraPlace whole(model, kLora, format);
  succeed(alone(whole, {"trainer_config.max_steps=4"}));
  CHECK(whole.loss("snapshot.pt", kOnText) != whole.loss("base.pt", kOnText));
  succeed(trainer(whole, {"export", "--snapshot", "snapshot.pt", "--output", "merged", "--merge",
                          "--dtype", "fp32"}));
  CHECK(whole.greedy("merged") == whole.greedy("snapshot.pt"));
  CHECK_THAT(finish(launched(whole, 2, {"distributed_config.tensor=2"})).err,
             Contains("does not divide adapters; remove lora.rank or tensor"));
  // The same base from other files is the same model; another one is noticed by its digest.
  const double loss = whole.loss("snapshot.pt");
  std::filesystem::copy_file(whole / "base.pt", whole / "first.pt");
  succeed(trainer(whole, {"export", "--snapshot", "first.pt", "--output", "same"}));
  std::filesystem::remove(whole / "base.pt");
  std::filesystem::rename(whole / "same", whole / "base.pt");
  CHECK(whole.loss("snapshot.pt") == loss);
  std::filesystem::remove_all(whole / "base.pt");
  std::filesystem::rename(whole / "merged", whole / "base.pt");
  const auto other = finish(trainer(whole, {"eval", "--snapshot", "snapshot.pt"}));
  CHECK_THAT(other.err, Contains("is not the model that the adapters were trained on"));
}

void check_tuned_adapters(const std::string& model) {
  INFO(model);
  const LoraPlace plain(model), checkpointed(model);
  const std::string section = plain.gpt ? "gpt_config" : "llama_config";
  const Words tuned = {"lora.targets=['*']", "optimizer_config.name=muon",
                       "optimizer_config.param_groups=[{pattern: '*.lora_B.*', lr_mult: 4}]",
                       "trainer_config.max_steps=6"};
  succeed(alone(plain, tuned));
  succeed(alone(checkpointed, joined(tuned, {section + ".activation_checkpointing=true"})));
  CHECK(differences(plain.snapshot(), checkpointed.snapshot()) == Words{});
}

/// Trains them in `place`, and exports them to its folder adapter.
void check_exported_adapters(const LoraPlace& place, const std::string& adapters = kLora) {
  INFO((place.gpt ? "gpt" : "llama") << adapters);
  const auto trained = succeed(alone(place));
  CHECK_THAT(trained.out,
             Contains(adapters == kPrompt ? "Prompt tuning: 5 virtual tokens, from a text"
                                          : "LoRA: rank 4, alpha 16, dropout 0.1 on " +
                                                std::string(place.gpt ? "2" : "4") + " layers"));
  const int64_t adapted = adapters == kPrompt ? 5 * 32
                          : place.gpt         ? 2 * (4 * 32 + 96 * 4)
                                              : 2 * 2 * (4 * 32 + 32 * 4);
  CHECK(inspect(place, "snapshot.pt").at("parameters") == adapted);
  CHECK(std::filesystem::file_size(place.snapshot()) <
        std::filesystem::file_size(place / "base.pt") / 3);
  CHECK_THAT(evaluations_of(trained.out).back(),
             Contains(std::to_string(place.loss("snapshot.pt"))));
  CHECK(place.loss("snapshot.pt", kOnText) != place.loss("base.pt", kOnText));
  CHECK(place.greedy("snapshot.pt") != place.greedy("base.pt"));
  if (adapters == kLora) {
    succeed(
        trainer(place, {"export", "--snapshot", "snapshot.pt", "--output", "merged", "--merge"}));
    CHECK(place.greedy("merged") == place.greedy("snapshot.pt"));
  }
  succeed(trainer(
      place, {"export", "--snapshot", "snapshot.pt", "--output", "adapter", "--format", "peft"}));
  const auto config = Json::parse(read_bytes(place / "adapter/adapter_config.json"));
  CHECK(config.at("base_model_name_or_path") == place / "base.pt");
  CHECK(config.at(adapters == kLora ? "r" : "num_virtual_tokens") == (adapters == kLora ? 4 : 5));
  const auto estimate =
      Json::parse(succeed(trainer(place, {"estimate", "--config", "config.yaml", "--json"})).out);
  CHECK(inspect(place, "snapshot.pt").at("parameters") == estimate.at("parameters").at("adapters"));
  const auto& memory = estimate.at("memory_per_rank_bytes");
  const int64_t trained_ones = estimate.at("parameters").at("adapters");
  CHECK(memory.at("weights") == 4 * estimate.at("parameters").at("total").get<int64_t>());
  CHECK(memory.at("gradients") == 4 * trained_ones);
  CHECK(memory.at("optimizer") == 8 * trained_ones);
  CHECK(memory.at("snapshot_copy") == 12 * trained_ones);
}

/// Two stages, of which one is killed, end as one process, and their adapters are exported.
void check_stages(const std::string& model, const std::string& quantize) {
  INFO(model << quantize);
  const Words options = {"trainer_config.ema_decay=0.9", "trainer_config.grad_accumulation_steps=2",
                         "lora.targets=all-linear"};
  const LoraPlace one(model, kLora, quantize), two(model, kLora, quantize);
  succeed(alone(one, options));
  const auto job =
      succeed(launched(two, 2,
                       joined(options, {"distributed_config.pipeline=2",
                                        plan_of({"rank=1 step=13 phase=backward kind=kill"})}),
                       kTwentyRestarts));
  CHECK_THAT(job.err, Contains("FAULT INJECTION: kill"));
  check_same_log(one, two);
  CHECK(two.greedy("snapshot.pt") == one.greedy("snapshot.pt"));
  CHECK_THAT(finish(launched(two, 2,
                             {"distributed_config.pipeline=2", "lora.targets=[lm_head]",
                              "trainer_config.snapshot_path=new.pt"}))
                 .err,
             Contains("remove them from lora.targets"));
}

/// Adapters of the token embedding and the output layer. The base of a GPT ties both.
std::string on_tables(const std::string& model) {
  const bool gpt = model == kGptAdapters;
  const std::string targets = gpt ? "[c_attn, wte, lm_head]" : "[q_proj, embed_tokens, lm_head]";
  return "lora: {rank: 4, dropout: 0.1, targets: " + targets + "}\n";
}

/// What `lora` trains of the two tables goes through every mode.
void check_tables(const std::string& model, const std::string& lora, const std::string& quantize) {
  INFO(model << lora);
  check_exact<LoraPlace>({"trainer_config.ema_decay=0.9"}, 13, {"zero3"}, model, lora, quantize);
  const LoraPlace place(model, lora, quantize);
  succeed(alone(place));
  const auto estimate =
      Json::parse(succeed(trainer(place, {"estimate", "--config", "config.yaml", "--json"})).out);
  CHECK(inspect(place, "snapshot.pt").at("parameters") == estimate.at("parameters").at("adapters"));
  CHECK(place.loss("snapshot.pt", kOnText) != place.loss("base.pt", kOnText));
  succeed(trainer(place, {"export", "--snapshot", "snapshot.pt", "--output", "merged", "--merge",
                          "--dtype", "fp32"}));
  CHECK(place.greedy("merged") == place.greedy("snapshot.pt"));
  succeed(trainer(
      place, {"export", "--snapshot", "snapshot.pt", "--output", "adapter", "--format", "peft"}));
  succeed(alone(place, {"lora.init_from=adapter", "optimizer_config.learning_rate=1e-30",
                        "trainer_config.max_steps=1", "trainer_config.snapshot_path=further.pt"}));
  CHECK(largest_parameter_distance(place.snapshot(), place / "further.pt") == 0.0);
  CHECK_THAT(finish(launched(place, 2, {"distributed_config.tensor=2"})).err,
             Contains("does not divide adapters; remove lora.rank or tensor"));
}

/// A classifier with adapters on the classifier in base.pt; of two layers of 32 channels.
struct AdaptedReviews : ReviewWorkspace {
  AdaptedReviews() {
    run_once(*this,
             alone(*this, {"trainer_config.snapshot_path=base.pt", "trainer_config.max_steps=6"}));
    write("config.yaml",
          tiny_config(std::string(kReviewConfig) + "lora: {rank: 4, dropout: 0.1}\n", 14, 4));
  }
  Words on_base(const Words& more = {}) const {
    return joined({"bert_config.init_from=base.pt"}, more);
  }
};

/// Two layers with adapters on query and value; the pooler and two labels.
constexpr int64_t kTrainedOfReviews = 2 * 2 * (4 * 32 + 32 * 4) + 32 * 33 + 2 * 33;

}  // namespace

TEST_CASE("of a classifier adapters and its own layers are saved, evaluated and merged") {
  const AdaptedReviews whole;
  const auto trained = succeed(alone(whole, whole.on_base()));
  CHECK_THAT(trained.out, Contains("LoRA: rank 4, alpha 16, dropout 0.1 on 4 layers"));
  CHECK(inspect(whole, "snapshot.pt").at("parameters") == kTrainedOfReviews);
  const auto estimate =
      json_of(whole, joined({"estimate", "--config", "config.yaml", "--json"}, whole.on_base()));
  CHECK(estimate.at("memory_per_rank_bytes").at("gradients") == 4 * kTrainedOfReviews);
  const auto loss = [&whole](const std::string& snapshot) {
    return json_of(whole, {"eval", "--snapshot", snapshot, "--data", "others.csv", "--json"})
        .at("loss")
        .get<double>();
  };
  CHECK(loss("snapshot.pt") != loss("base.pt"));
  succeed(trainer(whole, {"export", "--snapshot", "snapshot.pt", "--output", "merged", "--merge"}));
  const auto merged =
      json_of(whole, {"eval", "--snapshot", "merged", "--data", "others.csv", "--json"});
  std::filesystem::rename(whole / "base.pt", whole / "moved.pt");
  const auto adapted = json_of(whole, {"eval", "--snapshot", "snapshot.pt", "--base", "moved.pt",
                                       "--data", "others.csv", "--json"});
  CHECK(merged.at("loss").get<double>() == Approx(adapted.at("loss").get<double>()).epsilon(1e-5));
  const auto lost = finish(trainer(whole, {"eval", "--snapshot", "snapshot.pt"}));
  CHECK(lost.exit == 2);
  CHECK_THAT(lost.err, Contains("bert_config.init_from") && Contains("--base"));
}

TEST_CASE("two ranks, one of them killed, and two that shard train adapters as one process does") {
  check_exact_adapters(kGptAdapters, kLora, {"zero1"});
}

TEST_CASE("adapters on a base in 4 bits resume bit for bit, alone, replicated and sharded") {
  check_quantized_base(kLlamaAdapters, "nf4");
}

TEST_CASE("a classifier's adapters on a base in 8 bits resume bit for bit, and are divided",
          "[long]") {
  const Words quantized = {"bert_config.init_from=base.pt", "quantize.base=int8"};
  check_exact<AdaptedReviews>(quantized, 13, {"zero3"});
  const AdaptedReviews one;
  succeed(alone(one, quantized));
  const auto loss = [&one](const std::string& snapshot) {
    return json_of(one, {"eval", "--snapshot", snapshot, "--data", "others.csv", "--json"})
        .at("loss")
        .get<double>();
  };
  succeed(trainer(one, {"export", "--snapshot", "snapshot.pt", "--output", "merged", "--merge",
                        "--dtype", "fp32"}));
  CHECK(loss("merged") == Approx(loss("snapshot.pt")).epsilon(1e-5));
  const auto other = finish(alone(one, one.on_base()));
  CHECK_THAT(other.err, Contains("quantize.base is \"int8\" there, \"none\" in"));
}

TEST_CASE("two stages of a pipeline, one of them killed, train adapters as one process does") {
  check_stages(kLlamaAdapters, "nf4");
}

TEST_CASE("a classifier's adapters and virtual tokens are divided by every strategy", "[long]") {
  const Words base = {"bert_config.init_from=base.pt"};
  check_exact<AdaptedReviews>(base, 13, {"zero1", "zero2", "zero3"});
  check_exact<AdaptedReviews>(
      joined(base, {"~lora", "data_config.block_size=21", "+prompt_tuning.tokens=3"}), 13,
      {"zero3"});
}

TEST_CASE("checkpointed blocks, groups and Muon train adapters, too") {
  check_tuned_adapters(kGptAdapters);
}

TEST_CASE(
    "adapters are saved alone, evaluated, merged and exported with the model that they belong to") {
  check_exported_adapters(LoraPlace(kLlamaAdapters));
}

TEST_CASE("virtual tokens resume bit for bit, and are divided as adapters are") {
  check_exact_adapters(kGptAdapters, kPrompt, {"zero3"});
}

TEST_CASE("virtual tokens are evaluated, generate, go to peft, and a run starts from them there") {
  const LoraPlace place(kLlamaAdapters, kPrompt);
  check_exported_adapters(place, kPrompt);
  succeed(alone(place, {"prompt_tuning.text=null", "prompt_tuning.init_from=adapter",
                        "prompt_tuning.tokens=null", "optimizer_config.learning_rate=1e-30",
                        "trainer_config.max_steps=1", "trainer_config.snapshot_path=further.pt"}));
  CHECK(largest_parameter_distance(place.snapshot(), place / "further.pt") == 0.0);
  CHECK(place.greedy("further.pt") == place.greedy("snapshot.pt"));
  CHECK_THAT(finish(launched(place, 2, {"distributed_config.tensor=2"})).err,
             Contains("does not divide virtual tokens; remove prompt_tuning.tokens or tensor"));
}

TEST_CASE("virtual tokens of the other model are trained, resumed and divided, too", "[long]") {
  check_exact<LoraPlace>({}, 13, {"zero3"}, kGptAdapters, kPrompt, "nf4");
  check_exact_adapters(kLlamaAdapters, kPrompt, {"zero1", "zero2", "zero3"});
  check_exported_adapters(LoraPlace(kGptAdapters, kPrompt), kPrompt);
}

TEST_CASE("adapters of a tied embedding and output layer resume bit for bit, and are divided") {
  check_tables(kGptAdapters, on_tables(kGptAdapters), "none");
}

TEST_CASE("rows of added tokens next to adapters resume bit for bit, and are divided", "[long]") {
  check_tables(kGptAdapters, kLoraAndTokens, "none");
  const LoraPlace place(kGptAdapters, kLoraAndTokens);
  CHECK_THAT(finish(launched(place, 2, {"distributed_config.pipeline=2"})).err,
             Contains("and data_config.add_tokens, or use strategy=zero3"));
}

TEST_CASE("adapters of the other model are trained, resumed and exported, too", "[long]") {
  check_tables(kLlamaAdapters, on_tables(kLlamaAdapters), "nf4");
  check_tables(kLlamaAdapters, kLoraAndTokens, "nf4");
  check_stages(kGptAdapters, "none");
  check_exact_adapters(kLlamaAdapters, kLora, {"zero1"});
  check_tuned_adapters(kLlamaAdapters);
  check_exported_adapters(LoraPlace(kGptAdapters));
  check_quantized_base(kGptAdapters, "int8");
}

}  // namespace ddp::test
