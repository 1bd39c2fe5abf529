#include "trainer/model/gpt/gpt.h"

#include <cmath>
#include "tests/support/catch.h"

#include "tests/trainer/test_model.h"

namespace ddp::train {
namespace {

using test::random_tokens;
using test::tiny_config;

struct Preset {
  const char* name;
  int64_t layers, heads, channels;
  int64_t tied, untied, characters;  // V 50257 and T 1024; the last one V 65, T 128, untied
};

// Reference numbers: minGPT's presets, built on the meta device with the original code.
constexpr Preset kPresets[] = {
    {"openai-gpt", 12, 12, 768, 124'439'808, 163'037'184, 85'254'144},
    {"gpt2", 12, 12, 768, 124'439'808, 163'037'184, 85'254'144},
    {"gpt2-medium", 24, 16, 1024, 354'823'168, 406'286'336, 302'575'616},
    {"gpt2-large", 36, 20, 1280, 774'030'080, 838'359'040, 708'720'640},
    {"gpt2-xl", 48, 25, 1600, 1'557'611'200, 1'638'022'400, 1'475'974'400},
    {"gopher-44m", 8, 16, 512, 51'475'968, 77'207'552, 25'352'192},
    {"gpt-mini", 6, 6, 192, 12'515'520, 22'164'864, 2'719'104},
    {"gpt-micro", 4, 4, 128, 7'357'312, 13'790'208, 826'368},
    {"gpt-nano", 3, 3, 48, 2'546'400, 4'958'736, 97'296},
};

int64_t count(const Preset& preset, int64_t layers, int64_t vocab, int64_t block, bool tied) {
  GptConfig config = tiny_config(layers, preset.heads, preset.channels);
  config.tie_weights = tied;
  return GPT(config, vocab, block, 1)->parameter_count();
}

// The count is linear in the number of layers, so two shallow models give the deep one without its
// gigabytes.
int64_t extrapolated(const Preset& preset, int64_t vocab, int64_t block, bool tied) {
  const int64_t one = count(preset, 1, vocab, block, tied);
  return one + (preset.layers - 1) * (count(preset, 2, vocab, block, tied) - one);
}

torch::Tensor eval_logits(GPT& model, const torch::Tensor& tokens) {
  const torch::NoGradGuard no_grad;
  model->eval();
  return model->forward(tokens);
}

}  // namespace

TEST_CASE("every preset has minGPT's number of parameters") {
  for (const auto& preset : kPresets) {
    INFO(preset.name);
    CHECK(extrapolated(preset, 65, 128, false) == preset.characters);
    // Vocabulary and positions add rows of n_embd values each to the small model.
    const int64_t rows = (50257 - 65) + (1024 - 128);
    CHECK(extrapolated(preset, 65, 128, true) + rows * preset.channels == preset.tied);
    CHECK(preset.characters + (rows + 50257 - 65) * preset.channels == preset.untied);
  }
}

TEST_CASE("the small presets have their number of parameters when built whole") {
  for (const auto& preset : kPresets) {
    if (preset.untied > 30'000'000) continue;
    INFO(preset.name);
    CHECK(count(preset, preset.layers, 50257, 1024, false) == preset.untied);
    CHECK(count(preset, preset.layers, 50257, 1024, true) == preset.tied);
  }
}

TEST_CASE("a changed token leaves all logits before it unchanged, for every shape class") {
  constexpr int64_t kVocab = 65;
  constexpr int64_t kLength = 24;
  for (const auto& preset : kPresets) {
    for (const bool tied : {false, true}) {
      GptConfig config = tiny_config(2, preset.heads, preset.channels);
      config.tie_weights = tied;
      GPT model(config, kVocab, kLength, 7);
      const auto tokens = random_tokens(2, kLength, kVocab, 3);
      const auto before = eval_logits(model, tokens);
      for (const int64_t t : {int64_t{1}, kLength / 2, kLength - 1}) {
        INFO(preset.name << ", token " << t);
        auto changed = tokens.clone();
        changed.select(1, t).copy_((changed.select(1, t) + 1) % kVocab);
        const auto after = eval_logits(model, changed);
        CHECK(torch::equal(after.slice(1, 0, t), before.slice(1, 0, t)));
        CHECK_FALSE(torch::equal(after.slice(1, t, t + 1), before.slice(1, t, t + 1)));
      }
    }
  }
}

TEST_CASE("the initial loss is a little above that of a uniform guess") {
  constexpr int64_t kVocab = 65;
  for (const char* name : {"gpt-nano", "gpt-micro", "gpt-mini"}) {
    for (const auto& preset : kPresets) {
      if (std::string(preset.name) != name) continue;
      GPT model(tiny_config(preset.layers, preset.heads, preset.channels), kVocab, 128, 0);
      model->eval();
      const torch::NoGradGuard no_grad;
      const double loss =
          model->loss(random_tokens(8, 128, kVocab, 1), random_tokens(8, 128, kVocab, 2))
              .item<double>();
      INFO(name << " " << loss);
      CHECK(loss > std::log(65.0) - 0.01);
      CHECK(loss < std::log(65.0) + 0.2);
    }
  }
}

TEST_CASE("weights start with the standard deviations of GPT-2") {
  GPT model(tiny_config(6, 6, 192), 65, 128, 1337);
  for (const auto& p : model->model_parameters()) {
    INFO(p.name);
    const bool weight = p.name.rfind(".weight") == p.name.size() - 7;
    if (!weight) {
      CHECK(p.tensor.abs().max().item<double>() == 0.0);
    } else if (p.tensor.dim() == 1) {
      CHECK(p.tensor.eq(1).all().item<bool>());
    } else {
      const bool residual = p.name.find("c_proj") != std::string::npos;
      const double expected = residual ? 0.02 / std::sqrt(12.0) : 0.02;
      CHECK(p.tensor.std().item<double>() == Approx(expected).epsilon(0.03));
      CHECK(std::abs(p.tensor.mean().item<double>()) < expected / 20);
    }
  }
}

TEST_CASE("parameters have the names of Hugging Face's GPT-2") {
  GPT model(tiny_config(1), 65, 16, 1);
  std::vector<std::string> names;
  for (const auto& p : model->model_parameters()) names.push_back(p.name);
  CHECK(names == std::vector<std::string>{
                     "transformer.wte.weight", "transformer.wpe.weight",
                     "transformer.h.0.ln_1.weight", "transformer.h.0.ln_1.bias",
                     "transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_attn.bias",
                     "transformer.h.0.attn.c_proj.weight", "transformer.h.0.attn.c_proj.bias",
                     "transformer.h.0.ln_2.weight", "transformer.h.0.ln_2.bias",
                     "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_fc.bias",
                     "transformer.h.0.mlp.c_proj.weight", "transformer.h.0.mlp.c_proj.bias",
                     "transformer.ln_f.weight", "transformer.ln_f.bias", "lm_head.weight"});
}

TEST_CASE("weight decay applies to the weights of linear layers only") {
  GPT model(tiny_config(1), 65, 16, 1);
  for (const auto& p : model->model_parameters()) {
    INFO(p.name);
    const bool linear = p.name.find("c_attn.weight") != std::string::npos ||
                        p.name.find("c_proj.weight") != std::string::npos ||
                        p.name.find("c_fc.weight") != std::string::npos ||
                        p.name == "lm_head.weight";
    const bool decayed = p.role == ParameterRole::kHidden || p.role == ParameterRole::kLinear;
    CHECK(decayed == linear);
    CHECK((p.role == ParameterRole::kHidden) == (linear && p.name != "lm_head.weight"));
  }
}

TEST_CASE("a tied head has no matrix of its own and gets gradients from both uses") {
  GptConfig config = tiny_config();
  config.tie_weights = true;
  GPT model(config, 65, 16, 1);
  for (const auto& p : model->model_parameters()) CHECK(p.name != "lm_head.weight");
  model->loss(random_tokens(1, 16, 65, 1), random_tokens(1, 16, 65, 2)).backward();
  const auto grad = model->model_parameters().front().tensor.grad();
  CHECK(grad.ne(0).any(1).all().item<bool>());  // the head reaches every row, the embedding only
                                                // tokens that occur
}

TEST_CASE("equal seeds give equal weights, other seeds other ones") {
  GPT a(tiny_config(), 65, 16, 5);
  GPT b(tiny_config(), 65, 16, 5);
  GPT c(tiny_config(), 65, 16, 6);
  CHECK(torch::equal(a->parameters()[0], b->parameters()[0]));
  CHECK_FALSE(torch::equal(a->parameters()[0], c->parameters()[0]));
}

TEST_CASE("targets of -1 do not count in the loss") {
  GPT model(tiny_config(), 65, 16, 5);
  model->eval();
  const auto tokens = random_tokens(1, 16, 65, 1);
  auto targets = random_tokens(1, 16, 65, 2);
  targets.slice(1, 8, 16).fill_(-1);
  const auto masked = model->loss(tokens, targets);
  const auto cut = model->loss(tokens.slice(1, 0, 8), targets.slice(1, 0, 8));
  CHECK(masked.item<float>() == Approx(cut.item<float>()).epsilon(1e-6));
  CHECK(model->evaluation_sums(tokens, targets)[0].item<float>() ==
        Approx(8 * masked.item<float>()).epsilon(1e-6));
}

TEST_CASE("a sequence longer than the block is refused") {
  GPT model(tiny_config(), 65, 16, 5);
  CHECK_THROWS_WITH(model->forward(random_tokens(1, 17, 65, 1)),
                    Catch::Contains("longer than block_size"));
}

}  // namespace ddp::train
