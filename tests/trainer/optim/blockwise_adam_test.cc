// Averages in 8 bits, against the formulas written out one element at a time.
#include "trainer/optim/blockwise_adam.h"

#include <algorithm>
#include <cmath>

#include "tests/support/catch.h"

#include "trainer/config/param_groups.h"
#include "trainer/optim/optimizer.h"

namespace ddp::train {
namespace {

/// As bitsandbytes' create_dynamic_map() makes it, operator by operator.
std::vector<float> map_of_bitsandbytes(bool is_signed) {
  std::vector<float> data = {0.0F, 1.0F};
  for (int i = 0; i < 7; ++i) {
    const auto ends = torch::linspace(0.1, 1.0, (is_signed ? 1 << i : 2 << i) + 1, torch::kFloat32);
    const int64_t parts = ends.numel() - 1;
    const auto means =
        std::pow(10.0, i - 6) * ((ends.narrow(0, 0, parts) + ends.narrow(0, 1, parts)) / 2.0);
    for (int64_t k = 0; k < parts; ++k) {
      data.push_back(means[k].item<float>());
      if (is_signed) data.push_back(-means[k].item<float>());
    }
  }
  std::sort(data.begin(), data.end());
  return data;
}

/// The nearest value, by looking at all; of two the lower one.
uint8_t nearest_of_all(const DynamicMap& map, float x) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < map.values().size(); ++i) {
    const auto distance = [&](std::size_t k) {
      return std::abs(double{x} - double{map.values()[k]});
    };
    if (distance(i) < distance(best)) best = i;
  }
  return static_cast<uint8_t>(best);
}

torch::Tensor random_values(int64_t size, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto values = torch::randn({size}, generator, torch::kFloat32);
  return values * torch::logspace(-5, 0, size);
}

OptimizerConfig eight_bits(OptimizerName name) {
  OptimizerConfig config;
  config.name = name;
  config.state_bits = StateBits::k8;
  config.weight_decay = 0.2;
  return config;
}

TrainedParameters one_group(std::vector<Parameter> parameters) {
  TrainedParameters trained{std::move(parameters), {{"all", {}, {}}}};
  trained.groups[0].options.weight_decay = 0.2;
  for (std::size_t i = 0; i < trained.parameters.size(); ++i)
    trained.groups[0].members.push_back(i);
  return trained;
}

/// One average, by the formulas of the paper.
struct Reference {
  const DynamicMap& map;
  std::vector<uint8_t> codes;
  std::vector<float> absmax;

  Reference(const DynamicMap& used, int64_t size)
      : map(used),
        codes(static_cast<std::size_t>(size)),
        absmax(static_cast<std::size_t>((size + 255) / 256)) {}

  float at(std::size_t i) const { return map.values()[codes[i]] * absmax[i / 256]; }
  void set(const std::vector<float>& numbers, bool squares) {
    std::fill(absmax.begin(), absmax.end(), 0.0F);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      absmax[i / 256] = std::max(absmax[i / 256], std::abs(numbers[i]));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      codes[i] = nearest_of_all(map, numbers[i] * (1.0F / std::max(absmax[i / 256], 1e-38F)));
      if (squares && numbers[i] > 0.0F) codes[i] = std::max<uint8_t>(codes[i], 1);
    }
  }
};

template <class T>
std::vector<T> elements_of(const torch::Tensor& tensor) {
  const auto flat = tensor.detach().contiguous().view({-1});
  return {flat.const_data_ptr<T>(), flat.const_data_ptr<T>() + flat.numel()};
}

}  // namespace

TEST_CASE("the dynamic maps are bitsandbytes', bit for bit") {
  const auto values = [](const DynamicMap& map) {
    return std::vector<float>(map.values().begin(), map.values().end());
  };
  CHECK(values(DynamicMap::signed_map()) == map_of_bitsandbytes(true));
  CHECK(values(DynamicMap::unsigned_map()) == map_of_bitsandbytes(false));
}

TEST_CASE("a number is rounded to the nearest value of the map") {
  for (const auto* map : {&DynamicMap::signed_map(), &DynamicMap::unsigned_map()}) {
    auto numbers = elements_of<float>(random_values(20'000, 3).clamp(-1.0, 1.0));
    for (const float bound : map->bounds()) {
      for (const float direction : {-2.0F, 2.0F})
        numbers.push_back(std::nextafter(bound, direction));
      numbers.push_back(bound);
    }
    for (const float value : {0.0F, -0.0F, 1.0F, -1.0F, 1e-40F, -1e-40F, 1.0000001F})
      numbers.push_back(value);
    // Bounds are means that float32 has rounded.
    for (const float x : numbers) {
      CHECK(int{map->nearest(x)} == std::count_if(map->bounds().begin(), map->bounds().end(),
                                                  [&](float bound) { return x > bound; }));
    }
  }
}

TEST_CASE("Adam and AdamW in 8 bits take the steps of their formulas, bit for bit") {
  constexpr int64_t kSize = 4096 + 100;  // with a shorter last block
  for (const auto name : {OptimizerName::kAdamW, OptimizerName::kAdam}) {
    const bool decoupled = name == OptimizerName::kAdamW;
    auto weight = random_values(kSize, 1).requires_grad_(true);
    auto expected = elements_of<float>(weight);
    Reference m(DynamicMap::signed_map(), kSize), v(DynamicMap::unsigned_map(), kSize);
    const auto optimizer = make_optimizer(one_group({{"w", weight}}), eight_bits(name));
    constexpr double kRate = 0.01, kDecay = 0.2;
    for (int step = 1; step <= 20; ++step) {
      // A whole block without gradients, and elements that lose theirs.
      auto gradient = random_values(kSize, static_cast<uint64_t>(10 + step));
      gradient.narrow(0, 256, 256).zero_();
      if (step > 5) gradient.narrow(0, 1000, 700).zero_();
      weight.mutable_grad().copy_(gradient);
      optimizer->step(kRate, torch::zeros({}));
      const auto g = elements_of<float>(gradient);
      const auto root = static_cast<float>(std::sqrt(1.0 - std::pow(0.95, step)));
      const auto size = static_cast<float>(kRate / (1.0 - std::pow(0.9, step)));
      std::vector<float> averages, squares;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const float own = decoupled ? g[i] : g[i] + static_cast<float>(kDecay) * expected[i];
        averages.push_back(m.at(i) * 0.9F + own * static_cast<float>(1.0 - 0.9));
        squares.push_back(v.at(i) * 0.95F + own * own * static_cast<float>(1.0 - 0.95));
        expected[i] = expected[i] * static_cast<float>(decoupled ? 1.0 - kRate * kDecay : 1.0) -
                      averages[i] / (std::sqrt(squares[i]) / root + 1e-8F) * size;
      }
      m.set(averages, false);
      v.set(squares, true);
      INFO(facts_of(name).name << ", step " << step);
      const auto state = optimizer->state();
      REQUIRE(state.size() == 4);
      CHECK(elements_of<float>(weight) == expected);
      CHECK(elements_of<uint8_t>(state[0].tensor) == m.codes);
      CHECK(elements_of<float>(state[1].tensor) == m.absmax);
      CHECK(elements_of<uint8_t>(state[2].tensor) == v.codes);
      CHECK(elements_of<float>(state[3].tensor) == v.absmax);
    }
  }
}

TEST_CASE(
    "torch's operators make the same averages in 8 bits, and weights but for a root's rounding") {
  constexpr int64_t kSize = 5000;
  const auto weight = random_values(kSize, 1), by_operators = weight.clone();
  const BlockAverage m(weight, DynamicMap::signed_map()), v(weight, DynamicMap::unsigned_map());
  const BlockAverage m2(weight, DynamicMap::signed_map()), v2(weight, DynamicMap::unsigned_map());
  const AdamNumbers numbers{0.01, 0.9, 0.95, 0.1, 1e-8, true};
  for (int step = 1; step <= 10; ++step) {
    const auto gradient = random_values(kSize, static_cast<uint64_t>(step));
    const auto count = torch::full({}, static_cast<float>(step));
    const auto skip = torch::full({}, step == 4 ? 1.0F : 0.0F);
    adam_in_blocks(weight, gradient, m, v, count, skip, numbers);
    adam_by_operators(by_operators, gradient, m2, v2, count, skip, numbers);
  }
  CHECK(torch::equal(m.codes, m2.codes));
  CHECK(torch::equal(m.absmax, m2.absmax));
  CHECK(torch::equal(v.codes, v2.codes));
  CHECK(torch::equal(v.absmax, v2.absmax));
  CHECK(torch::allclose(weight, by_operators, 1e-6, 1e-8));
}

TEST_CASE("small parameters keep averages in 32 bits, and estimates count what is kept") {
  const auto tensor = [](std::vector<int64_t> sizes) {
    return torch::zeros(sizes).requires_grad_(true);
  };
  const OptimizerConfig config = eight_bits(OptimizerName::kAdamW);
  const auto trained =
      one_group({{"large", tensor({64, 65})}, {"edge", tensor({4096})}, {"small", tensor({4095})}});
  const auto optimizer = make_optimizer(trained, config);
  double expected = 0.0, kept = 0.0;
  for (const auto& p : trained.parameters)
    expected += state_bytes(p.tensor.numel(), trained.groups[0].options, config);
  std::map<std::string, torch::ScalarType> types;
  for (const auto& state : optimizer->state()) {
    kept += static_cast<double>(state.tensor.nbytes());
    types[state.name] = state.tensor.scalar_type();
  }
  CHECK(kept == expected);
  CHECK(types.at("large.exp_avg") == torch::kUInt8);
  CHECK(types.at("large.exp_avg_absmax") == torch::kFloat32);
  CHECK(types.at("edge.exp_avg_sq") == torch::kUInt8);
  CHECK(types.at("small.exp_avg") == torch::kFloat32);
  CHECK(types.count("small.exp_avg_absmax") == 0);
}

TEST_CASE("a weight with permuted memory has the blocks of its elements in order") {
  const auto plain = random_values(8 * 16 * 6 * 6, 2).view({8, 16, 6, 6});
  const auto permuted = plain.clone(torch::MemoryFormat::ChannelsLast);
  const auto gradient = random_values(plain.numel(), 3).view_as(plain);
  const BlockAverage m(plain, DynamicMap::signed_map()), v(plain, DynamicMap::unsigned_map());
  const BlockAverage m2(plain, DynamicMap::signed_map()), v2(plain, DynamicMap::unsigned_map());
  const AdamNumbers numbers{0.01, 0.9, 0.95, 0.1, 1e-8, true};
  adam_in_blocks(plain, gradient, m, v, torch::ones({}), torch::zeros({}), numbers);
  adam_in_blocks(permuted, gradient.contiguous(torch::MemoryFormat::ChannelsLast), m2, v2,
                 torch::ones({}), torch::zeros({}), numbers);
  CHECK(torch::equal(plain, permuted));
  CHECK(torch::equal(m.codes, m2.codes));
}

}  // namespace ddp::train
