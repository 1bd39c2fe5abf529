// One rank of a group of real processes over Gloo. Started by ddp-run; what it does is argv[1].
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/trainer/parallel/collective_ranks.h"
#include "tests/trainer/parallel/divided_ranks.h"
#include "tests/trainer/parallel/fake_device.h"
#include "tests/trainer/run/cut_memory.h"
#include "tests/trainer/run/cut_ranks.h"
#include "tests/trainer/run/norm_ranks.h"
#include "tests/trainer/snapshot/snapshot_files.h"
#include "tests/trainer/task/unequal_task.h"
#include "tests/trainer/test_model.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/device/device_wait.h"
#include "trainer/parallel/mesh/mesh.h"
#include "trainer/parallel/mesh/peer_watch.h"
#include "trainer/parallel/strategy/ddp.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/process/stop_signal.h"
#include "trainer/task/causal_lm.h"
#include "trainer/task/evaluator.h"

namespace ddp::train {
namespace {

Config halves_of(const std::string& path) {
  Config config;
  config.data.path = path;
  config.data.block_size = 16;
  config.data.train_split = 0.5;
  config.gpt = test::tiny_config();
  config.trainer.batch_size = 4;
  return config;
}

// Rank 0 prints the evaluation loss to the last bit.
int evaluate_text(ProcessGroup& group, const std::string& path) {
  const Config config = halves_of(path);
  CausalLm task(config, nullptr);
  task.build_model(torch::kCPU, 5);
  const Metrics metrics =
      evaluate(task, *task.evaluation(), 4, group, torch::kCPU, std::nullopt)->metrics;
  if (group.is_main()) std::printf("%a %.0f\n", metrics.front().second, metrics.back().second);
  return 0;
}

// The last rank wants to stop at once; rank 0 prints how many more batches it ran.
int stop_evaluation(ProcessGroup& group, const std::string& path) {
  const Config config = halves_of(path);
  CausalLm task(config, nullptr);
  task.build_model(torch::kCPU, 5);
  int asked = 0;
  const auto result = evaluate(task, *task.evaluation(), 4, group, torch::kCPU, std::nullopt, [&] {
    ++asked;
    return group.rank() + 1 < group.size();
  });
  if (group.is_main()) std::printf("%s, asked %d\n", result ? "finished" : "stopped", asked);
  return 0;
}

NamedParameters parameters_of(const GPT& model) {
  NamedParameters result;
  for (const auto& p : model->model_parameters()) result.emplace_back(p.name, p.tensor);
  return result;
}

// Rank 1 has another model than rank 0: DDP must report it instead of training nonsense. Rank 0
// then loses its peer.
int mismatched_models(ProcessGroup& group) {
  GPT model(test::tiny_config(1, 2, group.is_main() ? 32 : 64), 65, 16, 5);
  try {
    const DistributedDataParallel wrapped(parameters_of(model), group, {});
  } catch (const RunError& error) {
    std::printf("refused: %s\n", error.what());
  } catch (const std::exception&) {
    std::printf("peer lost\n");
  }
  return 0;
}

// Ranks start with other weights; construction gives all of them rank 0's.
int broadcast_at_construction(ProcessGroup& group) {
  GPT model(test::tiny_config(), 65, 16, static_cast<uint64_t>(group.rank()));
  const DistributedDataParallel wrapped(parameters_of(model), group, {});
  const GPT expected(test::tiny_config(), 65, 16, 0);
  for (std::size_t i = 0; i < model->parameters().size(); ++i) {
    if (!torch::equal(model->parameters()[i], expected->parameters()[i])) return 3;
  }
  if (group.is_main()) std::printf("equal\n");
  return 0;
}

// Rank 0 prints losses and weights to the last bit.
int train_on_unequal_weights(ProcessGroup& group) {
  const test::UnequalRun run = test::train_unequal(group, 6);
  if (!group.is_main()) return 0;
  for (const double loss : run.losses) std::printf("%a\n", loss);
  for (int64_t i = 0; i < run.weights.numel(); ++i)
    std::printf("%a ", static_cast<double>(run.weights.flatten()[i].item<float>()));
  return 0;
}

// Ranks have read files that differ, and of three ranks the last has read none: rank 0's counts.
int restore_unlike(ProcessGroup& group, const std::string& folder) {
  const Config config = test::unequal_config();
  test::UnequalTask task;
  Mesh mesh(group);
  Trainer trainer(config, {}, mesh, task, std::nullopt, nullptr);
  const torch::Tensor weight = task.parameters().front().tensor.detach();
  weight.fill_(group.rank() + 1);
  const TrainingState state = trainer.capture();
  const std::string path = folder + "/" + std::to_string(group.rank());
  test::save_snapshot(path, state.meta, state.tensors);
  weight.fill_(-1);
  const OpenedSnapshot own = open_snapshot(path);
  trainer.restore(own.meta, group.rank() < 2 ? &own : nullptr);
  if (!weight.eq(1).all().item<bool>() || trainer.compare_replicas([] {})) return 3;
  if (group.is_main()) std::printf("equal\n");
  return 0;
}

// What each rank says arrives at all of them, whatever its length.
int gather_texts(ProcessGroup& group) {
  const auto texts =
      group.gather_texts(std::string(static_cast<std::size_t>(group.rank()) * 3, 'x'));
  for (int rank = 0; rank < group.size(); ++rank) {
    if (texts[static_cast<std::size_t>(rank)].size() != static_cast<std::size_t>(rank) * 3)
      return 3;
  }
  if (group.is_main()) std::printf("equal\n");
  return 0;
}

// Through shared memory, unless `argument` prevents it; then the ranks ask for different sums.
int reduce_in_memory(const DistEnv& env, const std::string& argument) {
  DistributedConfig config;
  if (argument == "gloo") config.backend = Backend::kGloo;
  ProcessGroup group(env, config, {});
  const bool right = test::rarities_are_right(group) && test::sums_are_right(group) &&
                     (!group.shares_memory() || test::column_is_right(group));
  if (group.is_main())
    std::printf("%s, %s\n", group.shares_memory() ? "memory" : "sockets",
                right ? "right" : "wrong");
  if (!group.shares_memory()) return 0;
  std::vector<torch::Tensor> unlike = {torch::ones({group.is_main() ? 3 : 4})};
  const auto work = group.c10d()->allreduce(unlike);
  try {
    work->wait();
  } catch (const std::exception& error) {
    if (group.is_main()) std::printf("%s\n", error.what());
  }
  return work->isSuccess() ? 3 : 0;
}

// By memory, then by sockets: rows, then divided layers.
int rows_and_layers(const DistEnv& env) {
  DistributedConfig config;
  const WorkerStore store(env, config.timeout_s);
  for (const auto backend : {Backend::kAuto, Backend::kGloo}) {
    config.backend = backend;
    ProcessGroup group(env, config, {},
                       store.part(backend == Backend::kGloo ? "sockets" : "memory"));
    const auto right = group.gather_doubles(test::rows_are_right(group) ? 1.0 : 0.0);
    std::string wrong;
    for (const auto& each : group.gather_texts(test::wrong_in_divided_layers(group))) wrong += each;
    if (!group.is_main()) continue;
    const bool all = std::find(right.begin(), right.end(), 0.0) == right.end();
    std::printf("%s, rows %s, layers %s\n", group.shares_memory() ? "memory" : "sockets",
                all ? "right" : "wrong", wrong.empty() ? "right" : wrong.c_str());
  }
  return 0;
}

// Rank 1 is killed; rank 0's device then waits for it without end, and a copy of the state for the
// device.
int wait_under_spinning_kernel(ProcessGroup& group, const DistEnv& env) {
  const StopSignal stop_signal;
  test::FakeDevice device;
  PeerWatch peers(group, env, [](int silent) {
    std::printf("left, as rank %d is silent\n", silent);
    std::fflush(stdout);
    std::_Exit(128 + StopSignal::pending());
  });
  const PeerWatch::FinishFirst copy(peers, [&device] {
    if (!device_came_to(device.mark())) std::printf("the copy is given up\n");
  });
  group.barrier();
  if (!group.is_main()) std::raise(SIGKILL);
  wait_for_device(device.mark());
  return 3;
}

// Rank 0 prints the averaged gradients.
int average_gradients(ProcessGroup& group, const std::string& type) {
  DistributedConfig config;
  if (type == "bf16") config.gradient_compression = GradientCompression::kBf16;
  if (type == "fp16") config.gradient_compression = GradientCompression::kFp16;
  const auto weight = torch::zeros({1000}, torch::requires_grad());
  const auto bias = torch::zeros({7}, torch::requires_grad());
  DistributedDataParallel sync({{"weight", weight}, {"bias", bias}}, group, config);
  sync.begin_micro_batch(/*last=*/true);
  const auto x = torch::arange(1000, torch::kFloat32) * 0.37 * (group.rank() + 1) - 3.1;
  sync.backward((weight * x).sum() + (bias * x.slice(0, 0, 7)).sum());
  if (!group.is_main()) return 0;
  for (const auto& gradient : {weight.grad(), bias.grad()}) {
    for (int64_t i = 0; i < gradient.numel(); ++i)
      std::printf(i == 0 ? "%.9g" : " %.9g", static_cast<double>(gradient[i].item<float>()));
    std::printf("\n");
  }
  return 0;
}

// The last rank has found a GPU, the others none.
int mix_devices(const DistEnv& env) {
  DevicePlan plan;
  if (env.rank + 1 == env.world_size) plan.gpu = "GPU-0001";
  try {
    const ProcessGroup group(env, {}, plan);
  } catch (const UserError& error) {
    std::printf("refused: %s\n", error.what());
  }
  return 0;
}

/// "DxPxT"
MeshShape shape_of(const std::string& text) {
  MeshShape shape;
  std::sscanf(text.c_str(), "%dx%dx%d", &shape.data, &shape.pipeline, &shape.tensor);
  return shape;
}

int cut_state(const DistEnv& env, const std::string& shape, const std::string& folder) {
  ProcessGroup world(env, {}, {});
  Mesh mesh(world, shape_of(shape), env, {}, {});
  for (const auto& wrong : world.gather_texts(test::wrong_in_cut_state(mesh, folder))) {
    if (!wrong.empty() && world.is_main()) std::printf("%s\n", wrong.c_str());
  }
  if (world.is_main()) std::printf("done\n");
  return 0;
}

int model_norm(const DistEnv& env) {
  ProcessGroup world(env, {}, {});
  for (const auto& wrong : world.gather_texts(test::wrong_in_model_norm(world))) {
    if (!wrong.empty() && world.is_main()) std::printf("%s\n", wrong.c_str());
  }
  if (world.is_main()) std::printf("done\n");
  return 0;
}

/// Rank 0 prints how often it held the state.
int saved_cut_state(const DistEnv& env, const std::string& folder) {
  ProcessGroup world(env, {}, {});
  Mesh mesh(world, {1, 1, world.size()}, env, {}, {});
  const double times = test::times_in_memory_while_saved(mesh, folder);
  if (world.is_main()) std::printf("%.1f\n", times);
  return 0;
}

/// Rank 0 prints whether all ranks get by with their parts and a tensor.
int parts_in_memory(const DistEnv& env, const std::string& folder) {
  ProcessGroup world(env, {}, {});
  Mesh mesh(world, {1, 1, world.size()}, env, {}, {});
  const double parts = test::parts_in_memory(mesh, folder);
  if (world.is_main()) std::printf(parts < 1.25 ? "own parts\n" : "%.2f parts\n", parts);
  return 0;
}

/// Whether each group's sum over the numbers 10^rank has exactly its ranks, in memory and
/// by sockets, and the place of this rank in it is right.
std::string wrong_in_mesh(const DistEnv& env, const std::string& shape_text,
                          const DistributedConfig& config, const StorePart& store) {
  const MeshShape shape = shape_of(shape_text);
  ProcessGroup world(env, config, {}, store);
  const Mesh mesh(world, shape, env, config, {});
  const auto digit = [](const MeshPlace& place, const MeshShape& in) {
    return static_cast<int64_t>(std::pow(10, place.rank_in(in)));
  };
  struct Expected {
    ProcessGroup& group;
    std::function<bool(const MeshPlace&)> belongs;
  };
  const MeshPlace here = mesh.place();
  const std::vector<Expected> all = {
      {mesh.tensor(), [&](auto& p) { return p.data == here.data && p.stage == here.stage; }},
      {mesh.pipeline(), [&](auto& p) { return p.data == here.data && p.tensor == here.tensor; }},
      {mesh.data(), [&](auto& p) { return p.stage == here.stage && p.tensor == here.tensor; }},
      {mesh.model(), [&](auto& p) { return p.data == here.data; }}};
  std::string wrong;
  for (std::size_t i = 0; i < all.size(); ++i) {
    int64_t sum = 0;
    int place = 0, size = 0;
    for (int rank = 0; rank < shape.size(); ++rank) {
      const auto each = MeshPlace::of_rank(rank, shape);
      if (!all[i].belongs(each)) continue;
      sum += digit(each, shape);
      if (rank < env.rank) ++place;
      ++size;
    }
    auto got = torch::full({1}, digit(here, shape), torch::kInt64);
    all[i].group.all_reduce_sum(got);
    if (got.item<int64_t>() != sum || all[i].group.rank() != place || all[i].group.size() != size)
      wrong += fmt::format("rank {}, group {}; ", env.rank, i);
  }
  std::string together;
  for (const auto& each : world.gather_texts(wrong)) together += each;
  return together;
}

/// Each shape in memory and by sockets.
int mesh(const DistEnv& env, const std::string& shapes) {
  DistributedConfig config;
  const WorkerStore store(env, config.timeout_s);
  std::istringstream list(shapes);
  for (std::string shape; std::getline(list, shape, ',');) {
    for (const auto backend : {Backend::kAuto, Backend::kGloo}) {
      config.backend = backend;
      const auto part = store.part(shape + (backend == Backend::kGloo ? " sockets" : " memory"));
      const std::string wrong = wrong_in_mesh(env, shape, config, part);
      if (env.is_main() && !wrong.empty()) std::printf("%s: %s\n", shape.c_str(), wrong.c_str());
    }
  }
  if (env.is_main()) std::printf("done\n");
  return 0;
}

int run(const std::string& what, const std::string& argument) {
  const DistEnv env = DistEnv::from_environment();
  if (what == "mix_devices") return mix_devices(env);
  if (what == "reduce") return reduce_in_memory(env, argument);
  if (what == "rows_and_layers") return rows_and_layers(env);
  if (what == "mesh") return mesh(env, argument);
  if (what == "cut_state") {
    const auto space = argument.find(',');
    return cut_state(env, argument.substr(0, space), argument.substr(space + 1));
  }
  if (what == "model_norm") return model_norm(env);
  if (what == "saved_cut_state") return saved_cut_state(env, argument);
  if (what == "parts_in_memory") return parts_in_memory(env, argument);
  ProcessGroup group(env, {}, {});
  if (what == "evaluate") return evaluate_text(group, argument);
  if (what == "stop_evaluation") return stop_evaluation(group, argument);
  if (what == "mismatch") return mismatched_models(group);
  if (what == "gather_texts") return gather_texts(group);
  if (what == "broadcast") return broadcast_at_construction(group);
  if (what == "compress") return average_gradients(group, argument);
  if (what == "spinning_device") return wait_under_spinning_kernel(group, env);
  if (what == "unequal") return train_on_unequal_weights(group);
  if (what == "restore_unlike") return restore_unlike(group, argument);
  return 2;
}

}  // namespace
}  // namespace ddp::train

int main(int argc, char** argv) {
  return argc < 2 ? 2 : ddp::train::run(argv[1], argc > 2 ? argv[2] : "");
}
