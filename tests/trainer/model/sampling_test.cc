#include "trainer/model/sampling.h"

#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

#include "tests/trainer/interop/interop_peer.h"
#include "tests/trainer/test_model.h"

namespace ddp::train {
namespace {

SamplingOptions options_from(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  SamplingOptions options;
  options.temperature = json.value("temperature", options.temperature);
  if (json.contains("top_k")) options.top_k = json["top_k"].get<int64_t>();
  options.top_p = json.value("top_p", options.top_p);
  options.min_p = json.value("min_p", options.min_p);
  options.repetition_penalty = json.value("repetition_penalty", options.repetition_penalty);
  return options;
}

std::vector<int64_t> drawn(const torch::Tensor& scores_BV, const std::vector<double>& draws) {
  const auto tokens = draw_tokens(scores_BV, torch::tensor(draws, torch::kFloat64));
  return {tokens.data_ptr<int64_t>(), tokens.data_ptr<int64_t>() + tokens.numel()};
}

}  // namespace

TEST_CASE("probabilities are those of transformers' logits processors", "[peer]") {
  const test::TempDir dir;
  const std::string path = dir.file("cases.safetensors");
  if (!test::ask_peer({"sampling", path})) return;
  const SafetensorsFile file(path);
  REQUIRE(file.metadata().size() > 10);
  for (const auto& [number, text] : file.metadata()) {
    INFO(text);
    const auto logits = test::read_tensor(file, number + ".logits", torch::kFloat32);
    const auto context = test::read_tensor(file, number + ".context", torch::kInt64);
    const auto expected = test::read_tensor(file, number + ".probabilities", torch::kFloat32);
    const auto seen = torch::zeros(logits.sizes(), torch::kBool).scatter(1, context, true);
    const auto scores = process_logits(logits, seen, options_from(text)).softmax(-1);
    CHECK(torch::equal(scores > 0, expected > 0));
    CHECK(torch::allclose(scores, expected, 1e-5, 1e-7));
  }
}

TEST_CASE("a draw takes the token at which the cumulated probability exceeds it") {
  const auto scores = torch::tensor({{0.1, 0.0, 0.4, 0.5}}, torch::kFloat64).log();
  CHECK(drawn(scores, {0.0}) == std::vector<int64_t>{0});
  CHECK(drawn(scores, {0.0999}) == std::vector<int64_t>{0});
  CHECK(drawn(scores, {0.1001}) == std::vector<int64_t>{2});  // never one of probability 0
  CHECK(drawn(scores, {0.5001}) == std::vector<int64_t>{3});
  CHECK(drawn(scores, {std::nextafter(1.0, 0.0)}) == std::vector<int64_t>{3});
  CHECK(drawn(scores.repeat({2, 1}), {0.05, 0.9}) == std::vector<int64_t>{0, 3});
}

TEST_CASE("the coldest temperature is greedy, not NaN") {
  SamplingOptions options;
  options.temperature = 1e-300;
  const auto scores = process_logits(torch::tensor({{1.0F, 3.0F, 2.0F}}), {}, options);
  CHECK(drawn(scores, {0.999}) == std::vector<int64_t>{1});
}

}  // namespace ddp::train
