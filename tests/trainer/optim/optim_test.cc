// Schedules and optimizers against torch's and transformers' own, and what they promise besides.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include "tests/support/catch.h"

#include "tests/support/skip.h"
#include "tests/trainer/test_model.h"
#include "trainer/optim/muon.h"
#include "trainer/optim/optimizer.h"
#include "trainer/optim/schedule.h"
#include "trainer/optim/trained_parameters.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using Json = nlohmann::json;
constexpr int kSkipped = 77;
constexpr int64_t kTotal = 200;

std::vector<float> values_of(const torch::Tensor& tensor) {
  const auto flat = tensor.detach().contiguous().view({-1});
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

Json rates_of(const std::string& name, const OptimizerConfig& config) {
  const Schedule schedule(config, kTotal);
  std::vector<double> rates;
  const bool one_cycle = config.lr_schedule == LrSchedule::kOneCycle;  // ends with its total
  for (int64_t step = 0; step < (one_cycle ? kTotal : kTotal + 20); ++step)
    rates.push_back(schedule.learning_rate(step));
  return {{"lr_schedule", name},
          {"learning_rate", config.learning_rate},
          {"warmup_steps", config.warmup_steps},
          {"min_lr", config.min_lr},
          {"lr_power", config.lr_power},
          {"decay_steps", config.decay_steps.value_or(kTotal / 10)},
          {"end",
           config.lr_schedule == LrSchedule::kWsd ? kTotal : config.decay_steps.value_or(kTotal)},
          {"total", kTotal},
          {"rates", rates}};
}

Json all_rates() {
  const std::pair<const char*, LrSchedule> kinds[] = {{"constant", LrSchedule::kConstant},
                                                      {"linear", LrSchedule::kLinear},
                                                      {"polynomial", LrSchedule::kPolynomial},
                                                      {"cosine", LrSchedule::kCosine},
                                                      {"wsd", LrSchedule::kWsd},
                                                      {"one_cycle", LrSchedule::kOneCycle}};
  Json cases = Json::array();
  for (const auto& [name, kind] : kinds) {
    OptimizerConfig config;
    config.lr_schedule = kind;
    config.lr_power = 2.0;
    cases.push_back(rates_of(name, config));
    config.warmup_steps = 20;
    cases.push_back(rates_of(name, config));
    if (kind == LrSchedule::kOneCycle) continue;
    config.min_lr = 1e-5;
    config.decay_steps = 100;
    cases.push_back(rates_of(name, config));
  }
  return cases;
}

std::vector<Parameter> some_parameters() {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(4);
  const auto random = [&](const std::vector<int64_t>& shape) {
    return torch::randn(shape, generator, torch::kFloat32).requires_grad_(true);
  };
  return {{"hidden", random({24, 16}), ParameterRole::kHidden},
          {"wide", random({16, 48}), ParameterRole::kHidden},
          {"head", random({32, 16}), ParameterRole::kLinear},
          {"bias", random({24})}};
}

TrainedParameters grouped(const std::vector<Parameter>& parameters,
                          const OptimizerConfig& optimizer) {
  Config config;
  config.optimizer = optimizer;
  return trained_parameters(config, parameters);
}

Json options_of(const TrainedParameters& trained, std::size_t parameter) {
  for (const auto& group : trained.groups) {
    if (std::find(group.members.begin(), group.members.end(), parameter) == group.members.end())
      continue;
    return {{"optimizer", facts_of(group.options.optimizer).name},
            {"lr_mult", group.options.lr_mult},
            {"weight_decay", group.options.weight_decay}};
  }
  return {};
}

void set_gradients(const std::vector<Parameter>& parameters, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  for (const auto& p : parameters)
    p.tensor.grad().copy_(torch::randn(p.tensor.sizes(), generator, torch::kFloat32));
}

Json steps_of(const std::string& name, const OptimizerConfig& config) {
  const auto parameters = some_parameters();
  const auto trained = grouped(parameters, config);
  Json described = Json::array();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    described.push_back({{"name", p.name},
                         {"shape", p.tensor.sizes().vec()},
                         {"group", options_of(trained, i)},
                         {"before", values_of(p.tensor)}});
  }
  const auto optimizer = make_optimizer(trained, config);
  Json gradients = Json::array();
  for (uint64_t step = 0; step < 5; ++step) {
    set_gradients(parameters, step);
    Json row = Json::array();
    for (const auto& p : parameters) row.push_back(values_of(p.tensor.grad()));
    gradients.push_back(row);
    optimizer->step(config.learning_rate, torch::zeros({}));
  }
  for (std::size_t i = 0; i < parameters.size(); ++i)
    described[i]["after"] = values_of(parameters[i].tensor);
  return {{"name", name},
          {"learning_rate", config.learning_rate},
          {"betas", config.betas},
          {"eps", config.eps},
          {"momentum", momentum_of(config)},
          {"nesterov", config.nesterov},
          {"parameters", described},
          {"gradients", gradients}};
}

OptimizerConfig config_of(OptimizerName name, double momentum = 0.0, bool nesterov = false) {
  OptimizerConfig config;
  config.name = name;
  config.learning_rate = 0.01;
  if (momentum > 0.0) config.momentum = {false, momentum};
  config.nesterov = nesterov;
  return config;
}

/// With groups of other learning rates and weight decays; for Muon a matrix for AdamW and the head
/// for Muon.
OptimizerConfig in_groups(OptimizerConfig config) {
  config.param_groups.resize(3);
  config.param_groups[0].patterns = {"head", "bias"};
  config.param_groups[0].lr_mult = 0.3;
  config.param_groups[1].patterns = {"wide"};
  config.param_groups[1].lr_mult = 2.5;
  config.param_groups[1].weight_decay = 0.7;
  config.param_groups[2].patterns = {"*"};
  config.param_groups[2].weight_decay = 0.0;
  if (config.name != OptimizerName::kMuon) return config;
  config.param_groups[0].patterns = {"head"};
  config.param_groups[0].optimizer = OptimizerName::kMuon;
  config.param_groups[1].optimizer = OptimizerName::kAdamW;
  return config;
}

constexpr OptimizerName kAll[] = {OptimizerName::kAdamW, OptimizerName::kAdam, OptimizerName::kSgd,
                                  OptimizerName::kMuon};
static_assert(std::size(kAll) == std::size(kOptimizers));

}  // namespace

TEST_CASE("schedules and optimizers take the steps of torch's and transformers' own", "[peer]") {
  const Json cases = {{"rates", all_rates()},
                      {"steps",
                       {steps_of("adamw", config_of(OptimizerName::kAdamW)),
                        steps_of("adam", config_of(OptimizerName::kAdam)),
                        steps_of("sgd", config_of(OptimizerName::kSgd)),
                        steps_of("sgd", config_of(OptimizerName::kSgd, 0.9)),
                        steps_of("sgd", config_of(OptimizerName::kSgd, 0.9, true)),
                        steps_of("muon", config_of(OptimizerName::kMuon)),
                        steps_of("muon", config_of(OptimizerName::kMuon, 0.8)),
                        steps_of("adamw", in_groups(config_of(OptimizerName::kAdamW))),
                        steps_of("adam", in_groups(config_of(OptimizerName::kAdam))),
                        steps_of("sgd", in_groups(config_of(OptimizerName::kSgd, 0.9))),
                        steps_of("muon", in_groups(config_of(OptimizerName::kMuon)))}}};
  const test::TempDir dir;
  const std::string command = std::string(DDP_TEST_PYTHON) + " " + DDP_TEST_DIR +
                              "/optim/optim_peer.py " + dir.write("cases.json", cases.dump());
  // NOLINTNEXTLINE(bugprone-command-processor): the words are the test's own
  const int status = std::system(command.c_str());
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kSkipped) {
    return ddp::test::say_skipped(std::string(DDP_TEST_PYTHON) +
                                  " cannot import torch and transformers (./scripts/setup.sh "
                                  "--test)");
  }
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a step with a found infinity changes nothing, whatever the optimizer") {
  for (const auto name : kAll) {
    const auto parameters = some_parameters();
    const auto optimizer =
        make_optimizer(grouped(parameters, config_of(name, 0.9)), config_of(name, 0.9));
    set_gradients(parameters, 1);
    optimizer->step(0.01, torch::zeros({}));
    std::vector<torch::Tensor> before;
    for (const auto& p : parameters) before.push_back(p.tensor.detach().clone());
    for (const auto& state : optimizer->state()) before.push_back(state.tensor.clone());
    for (const auto& p : parameters) p.tensor.grad().fill_(std::numeric_limits<float>::quiet_NaN());
    optimizer->step(0.01, torch::ones({}));
    std::vector<torch::Tensor> after;
    for (const auto& p : parameters) after.push_back(p.tensor.detach());
    for (const auto& state : optimizer->state()) after.push_back(state.tensor);
    for (std::size_t i = 0; i < before.size(); ++i) CHECK(torch::equal(before[i], after[i]));
    CHECK(optimizer->step_count().item<float>() == 1.0F);
  }
}

TEST_CASE("an optimizer that is given another's state goes on as that one") {
  for (const auto name : kAll) {
    const auto first = some_parameters();
    const auto second = some_parameters();
    const auto one = make_optimizer(grouped(first, config_of(name, 0.9)), config_of(name, 0.9));
    const auto two = make_optimizer(grouped(second, config_of(name, 0.9)), config_of(name, 0.9));
    for (uint64_t step = 0; step < 3; ++step) {
      set_gradients(first, step);
      one->step(0.01, torch::zeros({}));
    }
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < first.size(); ++i) second[i].tensor.copy_(first[i].tensor);
    for (std::size_t i = 0; i < one->state().size(); ++i)
      two->state()[i].tensor.copy_(one->state()[i].tensor);
    two->step_count().copy_(one->step_count());
    for (const auto* pair : {&first, &second}) set_gradients(*pair, 9);
    one->step(0.01, torch::zeros({}));
    two->step(0.01, torch::zeros({}));
    for (std::size_t i = 0; i < first.size(); ++i)
      CHECK(torch::equal(first[i].tensor, second[i].tensor));
  }
}

TEST_CASE("estimates count the state that each optimizer keeps, by group") {
  for (const auto name : kAll) {
    for (const double momentum : {0.0, 0.9}) {
      const auto parameters = some_parameters();
      OptimizerConfig config = config_of(name, momentum);
      config.param_groups.resize(1);
      config.param_groups[0].patterns = {"head"};
      config.param_groups[0].frozen = true;
      const auto trained = grouped(parameters, config);
      int64_t expected = 0;
      for (const auto& group : trained.groups) {
        for (const std::size_t i : group.members)
          expected += states_of(group.options, config) * trained.parameters[i].tensor.numel();
      }
      int64_t kept = 0;
      for (const auto& state : make_optimizer(trained, config)->state())
        kept += state.tensor.numel();
      INFO(facts_of(name).name << " " << momentum);
      CHECK(kept == expected);
    }
  }
}

TEST_CASE("frozen parameters get no gradient, no state and no update, and can be trained again") {
  const auto parameters = some_parameters();
  OptimizerConfig config = config_of(OptimizerName::kMuon);
  config.param_groups.resize(1);
  config.param_groups[0].patterns = {"hidden", "bias"};
  config.param_groups[0].frozen = true;
  const auto optimizer = make_optimizer(grouped(parameters, config), config);
  std::vector<std::string> names;
  for (const auto& p : optimizer->parameters()) names.push_back(p.name);
  CHECK(names == std::vector<std::string>{"wide", "head"});
  CHECK(optimizer->gradients().size() == 2);
  CHECK_FALSE(parameters[0].tensor.requires_grad());
  CHECK_FALSE(parameters[0].tensor.grad().defined());
  const auto before = parameters[0].tensor.clone();
  for (const auto& p : optimizer->parameters()) p.tensor.grad().fill_(1.0);
  optimizer->step(0.01, torch::zeros({}));
  CHECK(torch::equal(parameters[0].tensor, before));
  for (const auto& state : optimizer->state())
    CHECK((state.name.starts_with("wide.") || state.name.starts_with("head.")));
  grouped(parameters, config_of(OptimizerName::kMuon));
  CHECK(parameters[0].tensor.requires_grad());
}

TEST_CASE("Muon's direction is nearly orthogonal, for tall and wide matrices") {
  for (const auto& shape : {std::vector<int64_t>{64, 16}, {16, 64}}) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
    const auto x = orthogonalised(torch::randn(shape, generator, torch::kFloat32));
    const auto singular = at::linalg_svdvals(x.to(torch::kFloat32));
    CHECK(singular.max().item<float>() < 1.3F);
    CHECK(singular.min().item<float>() > 0.5F);
  }
}

TEST_CASE("a run that is shorter than its schedule is cut short with a warning") {
  OptimizerConfig config;
  config.learning_rate = 1.0;
  config.warmup_steps = 100;
  for (const LrSchedule kind :
       {LrSchedule::kConstant, LrSchedule::kCosine, LrSchedule::kWsd, LrSchedule::kOneCycle}) {
    config.lr_schedule = kind;
    const Schedule trial(config, 50);
    CHECK_THAT(trial.cut_text(50), Catch::Contains("optimizer_config.warmup_steps=100") &&
                                       Catch::Contains("a run of 50 optimizer steps"));
    CHECK(std::isfinite(trial.learning_rate(49)));
    if (kind != LrSchedule::kOneCycle) CHECK(trial.learning_rate(25) == Approx(0.25));
    CHECK(Schedule(config, 101).cut_text(101).empty());
  }
  config.warmup_steps = 1;
  config.lr_schedule = LrSchedule::kOneCycle;
  CHECK(Schedule(config, 1).learning_rate(0) == 1.0);
  config.lr_schedule = LrSchedule::kWsd;
  config.decay_steps = 150;
  CHECK(Schedule(config, 101).learning_rate(51) == Approx(0.5));  // what is left decays
  CHECK_THAT(Schedule(config, 101).cut_text(101), Catch::Contains("decay_steps=150"));
  CHECK(Schedule(config, 151).cut_text(151).empty());
}

TEST_CASE("a share of the run warms up for as many steps as transformers counts") {
  OptimizerConfig config;
  config.lr_schedule = LrSchedule::kLinear;
  // math.ceil(total * ratio) in Python, whose product of 100 and 0.07 is above 7.
  for (const auto& [ratio, total, steps] : std::vector<std::tuple<double, int64_t, int64_t>>{
           {0.1, 1000, 100}, {0.07, 100, 8}, {0.06, 33, 2}, {0.03, 10, 1}, {0.0, 10, 0}}) {
    INFO(ratio << " of " << total);
    OptimizerConfig by_steps = config;
    by_steps.warmup_steps = steps;
    OptimizerConfig by_ratio = config;
    by_ratio.warmup_ratio = ratio;
    for (int64_t step = 0; step < total; ++step) {
      CHECK(Schedule(by_ratio, total).learning_rate(step) ==
            Schedule(by_steps, total).learning_rate(step));
    }
  }
}

TEST_CASE("a decay that ends before the warm-up is refused with the keys") {
  OptimizerConfig config;
  config.warmup_steps = 50;
  config.decay_steps = 40;
  config.lr_schedule = LrSchedule::kCosine;
  CHECK_THROWS_WITH(Schedule(config, 200), Catch::Contains("optimizer_config.decay_steps: 40"));
  config.decay_steps = 51;
  CHECK_NOTHROW(Schedule(config, 200));
}

TEST_CASE("wsd without decay_steps begins to decay after the warm-up") {
  OptimizerConfig config;
  config.lr_schedule = LrSchedule::kWsd;
  config.learning_rate = 1.0;
  config.min_lr = 0.0;
  config.warmup_steps = 190;
  const Schedule late(config, 200);
  CHECK(late.learning_rate(189) == Approx(189.0 / 190.0));
  CHECK(late.learning_rate(190) == 1.0);
  CHECK(late.learning_rate(195) == Approx(0.5));
  config.warmup_steps = 10;
  CHECK(Schedule(config, 200).learning_rate(180) == 1.0);
  CHECK(Schedule(config, 200).learning_rate(190) == Approx(0.5));
}

}  // namespace ddp::train
