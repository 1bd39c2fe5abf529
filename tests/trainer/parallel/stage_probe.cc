// One of the ranks that hold a model together, cut into stages whose layers are shared: in float64
// they compute what one process does. Started by ddp-run; argv[1] is the mesh, PxT, each further
// one MODEL,SCHEDULE,ROWS. Or argv[1] is "timed", each further one SCHEDULE,STAGES OF A
// RANK,MICRO-BATCHES: passes take virtual time instead. All of them by the same processes, as these
// take long to start.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "tests/trainer/llama_kinds.h"
#include "tests/trainer/test_model.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/causal_model.h"
#include "trainer/parallel/mesh/mesh.h"
#include "trainer/parallel/strategy/pipeline_executor.h"
#include "trainer/task/tensor_ranks.h"

namespace ddp::train {
namespace {

constexpr int64_t kStagedTokens = 67;  // which do not divide
constexpr int64_t kStagedLength = 16;
constexpr uint64_t kStagedSeed = 5;

struct MicroBatch {
  explicit MicroBatch(int64_t index)
      : number(index),
        tokens(test::random_tokens(2, kStagedLength, kStagedTokens, 20 + index)),
        targets(test::random_tokens(2, kStagedLength, kStagedTokens, 40 + index)) {}
  /// Its dropout masks are the same wherever a layer is.
  void seed() const { torch::manual_seed(100 + number); }

  int64_t number;
  torch::Tensor tokens, targets;
};

/// What a rank of `mesh` holds of the model of `config`.
class StagedRank : public StageCompute {
 public:
  StagedRank(const Config& config, Mesh& mesh, int64_t micro_batches)
      : micro_batches_(micro_batches), ranks_(mesh.shape().pipeline) {
    TensorRanksPtr ranks;
    if (mesh.shape().tensor > 1)
      ranks = make_tensor_ranks(mesh.tensor(), config.distributed.sequence_parallel);
    model = make_causal_model(config, kStagedTokens, std::nullopt, ranks);
    const auto layout = causal_architecture(config).layout(config, kStagedTokens);
    const int64_t chunks = config.distributed.pipeline_chunks;
    part_ = part_of_rank(
        cut_into_stages(stage_costs(layout, kStagedLength), static_cast<int>(ranks_ * chunks)),
        mesh.place().stage, ranks_);
    model->cut(part_, kStagedSeed);
    model->keep_own_parts();
    model->to(torch::kFloat64);
    model->train();
    SharedTable table;
    (mesh.is_first_stage() ? table.trained : table.copy) = model->shared_table();
    executor = std::make_unique<PipelineExecutor>(
        config.distributed.pipeline_schedule,
        PipelineShape{ranks_, static_cast<int>(chunks), micro_batches}, mesh.pipeline(),
        torch::TensorOptions(torch::kFloat64), table);
  }

  std::vector<int64_t> activation_shape(int64_t /*micro_batch*/) override {
    return {2, model->rows_handed_on(kStagedLength), model->width()};
  }
  torch::Tensor forward(int stage, int64_t micro_batch, const torch::Tensor& input) override {
    const MicroBatch batch(micro_batch);
    batch.seed();
    const LayerRange& layers = part_.stages[static_cast<std::size_t>(stage / ranks_)];
    const auto output = model->stage(input, layers, batch.tokens, {});
    if (layers.end < part_.layers) return output;
    const auto loss = model->loss_of(output, batch.targets);
    losses[micro_batch] = loss.item<double>();
    return loss / micro_batches_;
  }
  void backward(const torch::Tensor& start, bool /*sync*/) override { start.backward(); }
  void sync() override {}

  std::shared_ptr<CausalModel> model;
  std::unique_ptr<PipelineExecutor> executor;
  std::map<int64_t, double> losses;

 private:
  int64_t micro_batches_;
  int ranks_;
  ModelPart part_;
};

/// Stages whose passes take virtual time: what they hand on carries the clock of the rank that
/// hands it on, forward and backward.
class TimedStage : public StageCompute {
 public:
  std::vector<int64_t> activation_shape(int64_t /*micro_batch*/) override { return {1}; }
  torch::Tensor forward(int /*stage*/, int64_t /*micro_batch*/, const torch::Tensor& x) override {
    const auto from = x.defined() ? x : torch::zeros({1}, torch::kFloat64).requires_grad_();
    pass(from.item<double>(), 1);
    most_held = std::max(most_held, ++held_);
    auto output = from + (clock - from.detach());
    output.register_hook([this](const torch::Tensor& gradient) {
      pass(gradient.item<double>(), 2);
      return torch::full_like(gradient, clock);
    });
    return output;
  }
  void backward(const torch::Tensor& start, bool /*sync*/) override {
    start.backward();
    --held_;
  }
  void sync() override {}

  double clock = 0.0;
  double busy = 0.0;
  int most_held = 0;  ///< Micro-batches that have passed forward and not yet backward.

 private:
  void pass(double earliest, int time) {
    clock = std::max(clock, earliest) + time;
    busy += time;
  }

  int held_ = 0;
};

/// Prints the share of a step in which the ranks wait, and how many micro-batches each holds.
void run_timed(ProcessGroup& group, PipelineSchedule schedule, int chunks, int64_t micro_batches) {
  PipelineExecutor executor(schedule, {group.size(), chunks, micro_batches}, group,
                            torch::TensorOptions(torch::kFloat64), {});
  TimedStage stage;
  executor.run(stage);
  const auto clocks = group.gather_doubles(stage.clock);
  const auto busy = group.gather_doubles(stage.busy);
  const auto held = group.gather_doubles(stage.most_held);
  if (!group.is_main()) return;
  const double all = *std::max_element(clocks.begin(), clocks.end()) * group.size();
  fmt::print("{} {}\n", 1.0 - std::accumulate(busy.begin(), busy.end(), 0.0) / all,
             fmt::join(held, " "));
}

double relative_difference(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.sizes() != b.sizes()) return 1.0;
  if (b.numel() == 0) return 0.0;
  return (a - b).abs().max().item<double>() / std::max(1e-3, b.abs().max().item<double>());
}

/// Whether the last stage's copy of a tied table is bit for bit the one that the first trains.
bool has_same_table(const CausalModel& model, Mesh& mesh) {
  const auto table = model.shared_table();
  if (!table.defined()) return true;
  ProcessGroup& group = mesh.pipeline();
  if (mesh.is_first_stage()) {
    group.send(table.detach().contiguous(), group.size() - 1).wait();
    return true;
  }
  auto trained = torch::empty_like(table.detach());
  group.receive(trained, 0).wait();
  return torch::equal(table.detach(), trained);
}

/// Three steps of gradient descent by the ranks of `mesh` and by one process. Returns in what this
/// rank's losses or gradients are off by more than 1e-12, or "".
std::string wrong_in_stages(const Config& config, Mesh& mesh, int64_t micro_batches) {
  StagedRank own(config, mesh, micro_batches);
  const auto whole = make_causal_model(config, kStagedTokens, kStagedSeed);
  whole->to(torch::kFloat64);
  whole->train();
  own.executor->share_table();
  std::string wrong;
  for (int step = 0; step < 3; ++step) {
    own.model->zero_grad();
    whole->zero_grad();
    own.executor->run(own);
    own.model->sum_partial_gradients();
    for (int64_t i = 0; i < micro_batches; ++i) {
      const MicroBatch batch(i);
      batch.seed();
      const auto loss = whole->loss(batch.tokens, batch.targets);
      const auto known = own.losses.find(i);
      if (known != own.losses.end() && std::abs(known->second - loss.item<double>()) > 1e-12)
        wrong += "loss; ";
      (loss / micro_batches).backward();
    }
    const auto all = whole->named_parameters();
    const auto layouts = own.model->parameter_layouts();
    const torch::NoGradGuard no_grad;
    for (const auto& [name, weight, role] : own.model->model_parameters()) {
      const auto expected = own_part(all[name].grad(), layouts.at(name));
      if (relative_difference(weight.grad(), expected) > 1e-12) wrong += name + "; ";
      weight.sub_(weight.grad(), 0.1);
    }
    for (const auto& weight : whole->parameters()) weight.sub_(weight.grad(), 0.1);
    own.executor->share_table();
    if (!has_same_table(*own.model, mesh)) wrong += "another table on the last stage; ";
  }
  return wrong;
}

PipelineSchedule schedule_of(const std::string& name) {
  for (const auto schedule : {PipelineSchedule::kGpipe, PipelineSchedule::kInterleaved}) {
    if (name == name_of(schedule)) return schedule;
  }
  return PipelineSchedule::k1f1b;
}

Config config_of(const std::string& model, const std::string& schedule, bool by_sequence) {
  Config config;
  config.data.block_size = kStagedLength;
  if (model.find("gpt") != std::string::npos) {
    config.gpt =
        model == "gpt_of_six_heads" ? test::tiny_config(4, 6, 48) : test::tiny_config(4, 4, 32);
    config.gpt.tie_weights = model == "tied_gpt";
    config.gpt.activation_checkpointing = by_sequence;
  } else {
    for (auto& [name, shape] : test::llama_kinds()) {
      if (name != model) continue;
      shape.n_layer = 4;
      config = test::whole_config(test::config_of(shape), kStagedLength);
    }
  }
  DistributedConfig& distributed = config.distributed;
  distributed.sequence_parallel = by_sequence;
  distributed.pipeline_schedule = schedule_of(schedule);
  if (schedule == "interleaved") distributed.pipeline_chunks = 2;
  return config;
}

/// The three words of "a,b,c".
std::array<std::string, 3> words_of(const std::string& argument) {
  std::array<std::string, 3> words;
  std::istringstream text(argument);
  for (auto& word : words) std::getline(text, word, ',');
  return words;
}

int run(const std::vector<std::string>& arguments) {
  const DistEnv env = DistEnv::from_environment();
  ProcessGroup world(env, {}, {});
  const std::vector<std::string> cases(arguments.begin() + 1, arguments.end());
  if (arguments.at(0) == "timed") {
    for (const auto& each : cases) {
      const auto [schedule, chunks, micro_batches] = words_of(each);
      run_timed(world, schedule_of(schedule), std::stoi(chunks), std::stoll(micro_batches));
    }
    return 0;
  }
  MeshShape shape;
  std::sscanf(arguments.at(0).c_str(), "%dx%d", &shape.pipeline, &shape.tensor);
  Mesh mesh(world, shape, env, {}, {});
  for (const auto& each : cases) {
    const auto [model, schedule, rows] = words_of(each);
    const Config config = config_of(model, schedule, rows == "by_sequence");
    int rank = 0;
    for (const auto& wrong : world.gather_texts(wrong_in_stages(config, mesh, 4))) {
      if (!wrong.empty() && world.is_main()) fmt::print("{}, rank {}: {}\n", each, rank, wrong);
      ++rank;
    }
  }
  if (world.is_main()) fmt::print("done\n");
  return 0;
}

}  // namespace
}  // namespace ddp::train

int main(int argc, char** argv) { return ddp::train::run({argv + 1, argv + argc}); }
