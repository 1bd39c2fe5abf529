// llama_config: presets, sizes that follow from others, and folders of transformers.
#include "trainer/model/llama/llama_config.h"

#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

#include "tests/trainer/config/test_files.h"
#include "trainer/app/load_run.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/llama/llama_cost.h"
#include "trainer/model/llama/llama_pretrained.h"
#include "trainer/model/pretrained_config.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using Catch::Contains;
using Words = std::vector<std::string>;

// Before the first use of the key table, as in main().
const bool kKeysAdded = [] {
  add_model_keys();
  return true;
}();

Config load(Words overrides) {
  test::write_file("data.txt", "some text");
  test::write_file("c.yaml", "model: llama\ndata_config:\n  path: data.txt\n  block_size: 16\n");
  return load_config(ConfigSource::of_file("c.yaml"), overrides);
}

LlamaConfig llama_with(const Words& overrides) {
  const test::TestFolder folder;
  return llama_of(load(overrides));
}

std::string refusal(const Words& overrides) {
  const test::TestFolder folder;
  return test::error_of<UserError>([&] { load(overrides); });
}

const Words kSizes = {"llama_config.n_layer=2", "llama_config.n_head=4", "llama_config.n_embd=64"};

Words sizes_and(const Words& more) {
  Words words = kSizes;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// With `init_from` set to a folder with this config.json.
LlamaConfig from_folder(const nlohmann::json& json, Words overrides = {}) {
  const test::TestFolder folder;
  test::write_file("config.json", json.dump());
  overrides.push_back("llama_config.init_from=" + folder.str());
  return llama_of(load(overrides));
}

std::string refused_folder(const nlohmann::json& json, const Words& overrides = {}) {
  return test::error_of<UserError>([&] { from_folder(json, overrides); });
}

nlohmann::json folder_of(const std::string& type) {
  return {{"model_type", type},         {"num_hidden_layers", 2},
          {"num_attention_heads", 4},   {"num_key_value_heads", 2},
          {"hidden_size", 64},          {"intermediate_size", 96},
          {"rms_norm_eps", 1e-6},       {"max_position_embeddings", 32},
          {"tie_word_embeddings", true}};
}

}  // namespace

TEST_CASE("presets of llama_config have the published numbers of parameters") {
  struct Published {
    const char* name;
    int64_t vocab_size, parameters;
  };
  for (const auto& [name, vocab_size, parameters] :
       {Published{"llama-2-7b", 32000, 6'738'415'616}, {"llama-2-13b", 32000, 13'015'864'320},
        {"llama-3-8b", 128256, 8'030'261'248},         {"llama-3.1-8b", 128256, 8'030'261'248},
        {"llama-3.2-1b", 128256, 1'235'814'400},       {"llama-3.2-3b", 128256, 3'212'749'824},
        {"tinyllama-1.1b", 32000, 1'100'048'384},      {"smollm2-135m", 49152, 134'515'008},
        {"smollm2-360m", 49152, 361'821'120},          {"smollm2-1.7b", 49152, 1'711'376'384},
        {"qwen2.5-0.5b", 151936, 494'032'768},         {"qwen2.5-1.5b", 151936, 1'543'714'304},
        {"qwen2.5-3b", 151936, 3'085'938'688},         {"qwen2.5-7b", 152064, 7'615'616'512},
        {"qwen3-0.6b", 151936, 596'049'920},           {"qwen3-1.7b", 151936, 1'720'574'976},
        {"qwen3-4b", 151936, 4'022'468'096},           {"qwen3-8b", 151936, 8'190'735'360},
        {"mistral-7b", 32768, 7'248'023'552},          {"phi-3-mini-4k", 32064, 3'821'079'552},
        {"gemma-2-2b", 256000, 2'614'341'888},         {"gemma-2-9b", 256000, 9'241'705'984},
        {"gemma-3-1b", 262144, 999'885'952},           {"mixtral-8x7b", 32000, 46'702'792'704},
        {"qwen3-30b-a3b", 151936, 30'532'122'624}}) {
    INFO(name);
    const LlamaConfig llama = llama_with({std::string("llama_config.model_type=") + name});
    CHECK(elements_of(llama_layout(llama, vocab_size)) == parameters);
    CHECK(published_vocabulary(name) == vocab_size);
  }
  CHECK(published_vocabulary("llama-mini") == 0);
}

TEST_CASE("a preset of llama_config gives what is not given, sizes give what follows from them") {
  const LlamaConfig preset =
      llama_with({"llama_config.model_type=llama-3.2-1b", "llama_config.rope_theta=1e4"});
  CHECK(preset.head_dim == 64);
  CHECK(preset.n_kv_head == 8);
  CHECK(preset.tie_weights);
  CHECK(preset.rope_theta == 1e4);
  CHECK(preset.rope_scaling == RopeScaling{.rope_type = "llama3", .factor = 32});
  CHECK(llama_with({}).model_type == "smollm2-135m");
  const LlamaConfig sizes = llama_with(kSizes);
  CHECK(sizes.n_kv_head == 4);
  CHECK(sizes.head_dim == 16);
  CHECK(sizes.intermediate == 192);
  CHECK_FALSE(sizes.tie_weights);
}

TEST_CASE("a Gemma 3 from scratch has what every Gemma 3 has, and can be exported") {
  const LlamaConfig gemma = llama_with(sizes_and({"llama_config.family=gemma3_text"}));
  CHECK(gemma.qk_norm);
  CHECK(gemma.rope_local_base_freq == 10000.0);
  CHECK_THAT(llama_config_json(gemma, 65, 16, 0), Contains("\"rope_local_base_freq\": 10000.0"));
  const Words other = {"llama_config.family=gemma3_text", "llama_config.rope_local_base_freq=500"};
  CHECK(llama_with(sizes_and(other)).rope_local_base_freq == 500.0);
}

TEST_CASE("a model of experts has what its family has, and refuses what it cannot have") {
  const LlamaConfig mixtral = llama_with(sizes_and({"llama_config.family=mixtral"}));
  CHECK(mixtral.n_expert == 8);
  CHECK(mixtral.n_expert_per_token == 2);
  CHECK(mixtral.norm_topk_prob);
  CHECK(mixtral.router_aux_loss_coef == 0.001);
  const std::string qwen = "llama_config.family=qwen3_moe";
  CHECK(llama_with(sizes_and({qwen})).qk_norm);
  CHECK(llama_with(sizes_and({qwen, "llama_config.n_expert=16"})).n_expert == 16);
  const auto used = [](const char* preset, int64_t vocab_size) {
    return used_by_token(
        llama_layout(llama_with({std::string("llama_config.model_type=") + preset}), vocab_size));
  };
  CHECK(used("mixtral-8x7b", 32000) == 12'879'925'248);
  CHECK(used("qwen3-30b-a3b", 151936) == 3'353'032'704);
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"llama_config.n_expert=4"}, "models of family=llama have no experts"},
      {{"llama_config.family=mistral", "llama_config.n_expert_per_token=2"},
       "models of family=mistral have no experts"},
      {{qwen, "llama_config.n_expert=4"}, "n_expert_per_token: 8 is above n_expert=4"},
      {{"llama_config.family=mixtral", "llama_config.norm_topk_prob=false"},
       "family=mixtral always scales"},
      {{"llama_config.num_local_experts=4"}, "llama_config.n_expert"}};
  for (const auto& [words, message] : cases)
    CHECK_THAT(refusal(sizes_and(words)), Contains(message));
}

TEST_CASE("experts are read from the config.json of transformers 4 and 5") {
  nlohmann::json json = folder_of("qwen3_moe");
  json.update({{"num_experts_per_tok", 2},
               {"moe_intermediate_size", 24},
               {"norm_topk_prob", true},
               {"router_aux_loss_coef", 0.5},
               {"decoder_sparse_step", 1},
               {"mlp_only_layers", nlohmann::json::array()}});
  for (const char* key : {"num_experts", "num_local_experts"}) {
    nlohmann::json of_version = json;
    of_version[key] = 4;
    const LlamaConfig read = from_folder(of_version);
    CHECK(read.n_expert == 4);
    CHECK(read.n_expert_per_token == 2);
    CHECK(read.intermediate == 24);
    CHECK(read.norm_topk_prob);
    CHECK(read.router_aux_loss_coef == 0.5);
    const Words none = {"llama_config.router_aux_loss_coef=0"};
    CHECK(from_folder(of_version, none).router_aux_loss_coef == 0.0);
  }
  json["decoder_sparse_step"] = 2;
  json["mlp_only_layers"] = {1};
  const auto refused = refused_folder(json);
  CHECK_THAT(refused, Contains("decoder_sparse_step is 2, not 1"));
  CHECK_THAT(refused, Contains("mlp_only_layers is [1], not []"));
  json = folder_of("mixtral");
  json["router_jitter_noise"] = 0.1;
  CHECK_THAT(refused_folder(json), Contains("router_jitter_noise is 0.1"));
  CHECK_THAT(refused_folder(folder_of("qwen2_moe")),
             Contains("model_type is 'qwen2_moe', not one of"));
}

TEST_CASE("values of llama_config that do not fit each other are refused in one line") {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"llama_config.model_type=llama-9"}, "'llama-9' is not one of llama-2-7b"},
      {{"llama_config.model_type=qwen3-8b", "llama_config.n_head=2"}, "conflicts with"},
      {{"llama_config.n_head=2"}, "missing; set n_layer, n_head and n_embd together"},
      {sizes_and({"llama_config.n_kv_head=3"}), "3 does not divide n_head=4"},
      {{"llama_config.n_layer=1", "llama_config.n_head=4", "llama_config.n_embd=66"},
       "66 is not divisible by llama_config.n_head=4"},
      {sizes_and({"llama_config.head_dim=15"}), "15 is odd"},
      {sizes_and({"llama_config.rope_scaling.rope_type=longrope"}),
       "'longrope' is not one of default"},
      {sizes_and({"llama_config.rope_scaling.factor=2"}), "no effect with rope_type=default"},
      {sizes_and({"llama_config.rope_scaling.rope_type=llama3",
                  "llama_config.rope_scaling.high_freq_factor=1"}),
       "1 is not above low_freq_factor=1"},
      {sizes_and({"gpt_config.n_layer=2"}), "gpt_config.n_layer=2: does not apply to model=llama"},
      {sizes_and({"model=lama"}),
       "does not apply to model=lama, which is none of gpt, llama; remove it, or set model=llama"}};
  for (const auto& [overrides, part] : cases) {
    const std::string text = refusal(overrides);
    CHECK_THAT(text, Contains(part));
    CHECK(text.find('\n') == std::string::npos);
  }
}

TEST_CASE("the shape follows a folder of llama, qwen2 or qwen3") {
  const LlamaConfig llama = from_folder(folder_of("llama"));
  CHECK(llama.n_layer == 2);
  CHECK(llama.n_kv_head == 2);
  CHECK(llama.head_dim == 16);
  CHECK(llama.intermediate == 96);
  CHECK(llama.norm_eps == 1e-6);
  CHECK(llama.rope_theta == 1e4);
  CHECK(llama.tie_weights);
  CHECK_FALSE((llama.qkv_bias || llama.qk_norm));
  CHECK(from_folder(folder_of("qwen2")).qkv_bias);
  const LlamaConfig qwen3 = from_folder(folder_of("qwen3"));
  CHECK(qwen3.qk_norm);
  CHECK(qwen3.head_dim == 128);
}

TEST_CASE("scaling of rotary embeddings is read as each version of transformers writes it") {
  const nlohmann::json scaling = {{"factor", 8.0},
                                  {"low_freq_factor", 1.0},
                                  {"high_freq_factor", 4.0},
                                  {"original_max_position_embeddings", 64}};
  const RopeScaling expected{"llama3", 8.0, 1.0, 4.0, 64};
  nlohmann::json older = folder_of("llama");
  older["rope_theta"] = 5e5;
  for (const char* key : {"type", "rope_type"}) {
    older["rope_scaling"] = scaling;
    older["rope_scaling"][key] = "llama3";
    const LlamaConfig read = from_folder(older);
    CHECK(read.rope_theta == 5e5);
    CHECK(read.rope_scaling == expected);
  }
  nlohmann::json newer = folder_of("llama");
  newer["rope_parameters"] = scaling;
  newer["rope_parameters"]["rope_type"] = "llama3";
  newer["rope_parameters"]["rope_theta"] = 5e5;
  CHECK(from_folder(newer).rope_theta == 5e5);
  CHECK(from_folder(newer).rope_scaling == expected);
  older["rope_scaling"] = nullptr;
  CHECK(from_folder(older).rope_scaling == RopeScaling{});
}

TEST_CASE("rope_scaling replaces rope_parameters, and updates Gemma 3's, as in transformers") {
  nlohmann::json json = folder_of("llama");
  json["rope_theta"] = 500.0;
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 77.0}, {"truncate", false}};
  CHECK(from_folder({{"model_type", "llama"},
                     {"rope_parameters", {{"rope_theta", 77.0}}},
                     {"rope_scaling", nlohmann::json::object()}})
            .rope_theta == 77.0);
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  const LlamaConfig both = from_folder(json);
  CHECK(both.rope_scaling == RopeScaling{.rope_type = "linear", .factor = 2});
  CHECK(both.rope_theta == 500.0);
  json = folder_of("gemma3_text");
  json["rope_parameters"] = {{"full_attention", {{"rope_theta", 3e6}, {"factor", 4.0}}},
                             {"sliding_attention", {{"rope_theta", 500.0}}}};
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  const LlamaConfig gemma3 = from_folder(json);
  CHECK(gemma3.rope_scaling == RopeScaling{.rope_type = "linear", .factor = 8});
  CHECK(gemma3.rope_theta == 3e6);
  CHECK(gemma3.rope_local_base_freq == 500.0);
}

TEST_CASE("the config.json of an exported Llama describes the shape that was exported") {
  for (const LlamaPreset& preset : llama_presets()) {
    const LlamaConfig llama = llama_with({"llama_config.model_type=" + std::string(preset.name)});
    const auto json = nlohmann::json::parse(llama_config_json(llama, 65, 128, std::nullopt));
    INFO(preset.name << json);
    const LlamaConfig read = from_folder(json);
    CHECK(llama_config_json(read, 65, 128, std::nullopt) ==
          llama_config_json(llama, 65, 128, std::nullopt));
    CHECK(read.qkv_bias == llama.qkv_bias);
    CHECK(read.qk_norm == llama.qk_norm);
  }
}

TEST_CASE("a folder that a Llama cannot represent is refused with the key of its config.json") {
  const std::vector<std::pair<nlohmann::json, std::string>> cases = {
      {{{"hidden_act", "gelu"}}, "hidden_act is gelu, not silu"},
      {{{"attention_bias", true}}, "attention_bias is true"},
      {{{"mlp_bias", true}}, "mlp_bias is true"},
      {{{"use_sliding_window", true}}, "use_sliding_window is true"},
      {{{"layer_types", {"full_attention", "sliding_attention"}}},
       "layer_types is [\"full_attention\",\"sliding_attention\"], not"},
      {{{"rope_scaling", {{"type", "longrope"}, {"factor", 4.0}}}}, "rope_type is longrope"},
      {{{"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}, {"truncate", false}}}},
       "rope_scaling.truncate is false"},
      {{{"rope_scaling", "none"}}, "rope_scaling is \"none\""},
      {{{"rope_scaling", {{"type", "linear"}}}}, "rope_type linear has no factor"},
      {{{"rope_scaling", {{"type", "linear"}, {"factor", -1.0}}}}, "factor is -1.0, not > 0"},
      {{{"rope_theta", 0}}, "rope_theta is 0, not > 0"},
      {{{"rms_norm_eps", -1}}, "rms_norm_eps is -1, not > 0"},
      {{{"num_attention_heads", 0}}, "num_attention_heads is 0, not >= 1"},
      {{{"vocab_size", -5}}, "vocab_size is -5, not >= 1"},
      {{{"partial_rotary_factor", 1.5}}, "partial_rotary_factor is 1.5, not > 0 and <= 1"},
      {{{"quantization_config", {{"bits", 4}}}},
       "weights quantized by another program are not read"},
      {{{"num_hidden_layers", 1'000'000}}, "num_hidden_layers is 1000000, above 10000"},
      {{{"head_dim", 1'000'000'000}}, "head_dim is 1000000000, above 10000"},
      {{{"is_encoder_decoder", true}}, "is_encoder_decoder is true, not false"},
      {{{"num_hidden_layers", "two"}}, "num_hidden_layers is \"two\""},
      {{{"attention_dropout", 0.1}}, "attention_dropout is 0.1, not 0"},
      {{{"model_type", "opt"}},
       "model_type is 'opt', not one of llama, qwen2, qwen3, mistral, phi3, gemma2, gemma3_text"}};
  for (const auto& [change, part] : cases) {
    nlohmann::json json = folder_of("llama");
    json.update(change);
    const std::string text = refused_folder(json);
    CHECK_THAT(text, Contains("llama_config.init_from") && Contains(part));
    CHECK(text.find('\n') == std::string::npos);
  }
}

TEST_CASE("what Mistral, Phi-3 and Gemma have in config.json is read, null as none") {
  const LlamaConfig mistral = from_folder(folder_of("mistral"));
  CHECK(mistral.family == "mistral");
  CHECK(mistral.sliding_window == 4096);
  auto json = folder_of("mistral");
  json["sliding_window"] = nullptr;
  CHECK(from_folder(json).sliding_window == 0);
  json = folder_of("phi3");
  json["partial_rotary_factor"] = 0.5;
  CHECK(from_folder(json).partial_rotary_factor == 0.5);
  json = folder_of("gemma2");
  json["num_hidden_layers"] = 4;
  json["final_logit_softcapping"] = nullptr;
  const LlamaConfig gemma2 = from_folder(json);
  CHECK(gemma2.full_attention_every == 2);
  CHECK(gemma2.head_dim == 256);
  CHECK(gemma2.attn_logit_softcapping == 50);
  CHECK(gemma2.final_logit_softcapping == 0);
  json["model_type"] = "gemma3_text";
  json["sliding_window_pattern"] = 3;
  CHECK(from_folder(json).full_attention_every == 3);
  json["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention",
                         "full_attention"};
  json["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 500.0}}}};
  const LlamaConfig gemma3 = from_folder(json);
  CHECK(gemma3.full_attention_every == 2);
  CHECK(gemma3.rope_scaling == RopeScaling{.rope_type = "linear", .factor = 8});
  CHECK(gemma3.rope_local_base_freq == 500);
  CHECK(gemma3.qk_norm);
}

TEST_CASE("keys that Mistral, Phi-3 and Gemma give a meaning that is not implemented are refused") {
  const std::vector<std::tuple<std::string, nlohmann::json, std::string>> cases = {
      {"mistral", {{"layer_types", {"full_attention", "sliding_attention"}}}, "layer_types is ["},
      {"mistral", {{"attention_dropout", 0.1}}, "attention_dropout is 0.1"},
      {"phi3",
       {{"rope_scaling", {{"type", "longrope"}, {"factor", 2.0}}}},
       "rope_type is longrope"},
      {"phi3", {{"resid_pdrop", 0.1}}, "resid_pdrop is 0.1"},
      {"gemma2", {{"hidden_activation", "gelu"}}, "hidden_activation is gelu"},
      {"gemma2", {{"use_bidirectional_attention", true}}, "use_bidirectional_attention is true"},
      {"gemma2", {{"layer_types", {"full_attention", "sliding_attention"}}}, "layer_types is ["},
      {"gemma3_text", {{"attn_logit_softcapping", 50.0}}, "attn_logit_softcapping is set"},
      {"gemma3_text",
       {{"rope_parameters",
         {{"full_attention", {{"rope_type", "default"}}},
          {"sliding_attention", {{"rope_type", "linear"}, {"factor", 2.0}}}}}},
       "rope_parameters.sliding_attention.rope_type is"}};
  for (const auto& [type, change, part] : cases) {
    nlohmann::json json = folder_of(type);
    json.update(change);
    CHECK_THAT(refused_folder(json), Contains("llama_config.init_from") && Contains(part));
  }
  CHECK_THAT(refusal(sizes_and({"llama_config.family=gemma3"})), Contains("did you mean"));
}

TEST_CASE("each difference between a Llama's folder and the configuration is listed") {
  const std::string text = refused_folder(
      folder_of("llama"),
      {"llama_config.n_layer=3", "llama_config.n_head=4", "llama_config.n_embd=128",
       "llama_config.n_kv_head=1", "llama_config.tie_weights=false", "llama_config.qk_norm=true",
       "llama_config.rope_scaling.rope_type=linear", "llama_config.rope_scaling.factor=2"});
  for (const char* part : {"n_layer is 2 there, 3 here", "n_embd is 64 there, 128 here",
                           "n_kv_head is 2 there, 1 here", "tie_weights is true there, false here",
                           "qk_norm is false there, true here",
                           "rope_scaling is default there, linear of factor 2 here"}) {
    CHECK_THAT(text, Contains(part));
  }
  CHECK_THAT(text, !Contains("head_dim") && !Contains("intermediate"));
}

TEST_CASE("a folder of each Llama is told from others by its model_type") {
  const test::TestFolder folder;
  for (const char* type :
       {"llama", "qwen2", "qwen3", "mistral", "phi3", "gemma2", "gemma3_text", "gpt2"}) {
    test::write_file("config.json", folder_of(type).dump());
    CHECK(architecture_of_folder(folder.str())->name() ==
          (type == std::string("gpt2") ? "gpt" : "llama"));
  }
  test::write_file("config.json", R"({"model_type": "opt"})");
  CHECK_THAT(test::error_of<UserError>([&] { architecture_of_folder(folder.str()); }),
             Contains("model_type is 'opt'; this trainer reads bert, roberta, distilbert, gpt2, "
                      "llama, qwen2, qwen3, "
                      "mistral, phi3, gemma2, gemma3_text"));
}

TEST_CASE("a token costs a Llama 6 operations per multiplied weight, and attention") {
  const LlamaConfig tied = llama_with(sizes_and({"llama_config.tie_weights=true"}));
  const LlamaConfig untied = llama_with(kSizes);
  const auto attention = 12.0 * 2 * 4 * 16 * 32;
  CHECK(llama_flops_per_token(tied, 65, 32) ==
        6.0 * static_cast<double>(elements_of(llama_layout(tied, 65))) + attention);
  CHECK(llama_flops_per_token(untied, 65, 32) == llama_flops_per_token(tied, 65, 32));
}

}  // namespace ddp::train
