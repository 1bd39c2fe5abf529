#include "trainer/app/plan/plan_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>

#include "trainer/config/config.h"
#include "trainer/metrics/text.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

constexpr double kGiga = 1e9;

/// What is assumed of a rank.
struct Hardware {
  std::string_view name;
  double tflops;
  double efficiency;
  double memory_bytes_per_s;
  Link inside;
  Link between;
};

/// An H100: the dense peak, of which llm.c and Megatron-LM attain that share at least, sustained
/// memory, NVLink as NCCL uses it (370GB/s for large messages, 150GB/s for 58MB among eight), and a
/// 400 Gb/s adapter for each. Or a CPU's thread, shared memory and sockets as measured in
/// docs/performance.md.
Hardware assumed(const TrainerConfig& trainer, bool cuda) {
  Hardware h100{"H100, float32", 67.0, 0.4, 3000 * kGiga, {29e-6, 370e9}, {29e-6, 50e9}};
  Hardware core{"core with AVX-512", 0.129, 0.65, 14 * kGiga, {12e-6, 3.5e9}, {120e-6, 0.93e9}};
  if (trainer.use_amp) {
    std::tie(h100.name, h100.tflops) = std::pair("H100, 16-bit", 989.0);
    std::tie(core.tflops, core.efficiency) = std::pair(0.506, 0.21);
  } else if (trainer.tf32) {
    std::tie(h100.name, h100.tflops) = std::pair("H100, TF32", 494.5);
  }
  return cuda ? h100 : core;
}

/// How far plans were from measurements with such speeds, docs/choosing-a-strategy.md.
std::string_view error_text(const PlanArgs& args, bool cuda, bool use_amp, bool peak_given) {
  const bool assumed = !args.tflops && !args.efficiency && !args.link_gb_s && !peak_given;
  if (cuda) {
    return assumed && use_amp && args.nodes == 1
               ? "step within 25 % of published runs on 8 H100s, memory unmeasured"
               : "step and memory unmeasured";
  }
  return args.tflops && args.efficiency && args.link_gb_s
             ? "step -17 to +2 % on 2 ranks with measured speeds, memory -7 to +6 %"
             : "step unmeasured without --tflops, --efficiency and --link, memory -7 to +6 %";
}

}  // namespace

double all_gather_seconds(const Cluster& cluster, double bytes) {
  const auto local = static_cast<double>(cluster.ranks_of_node());
  const auto nodes = static_cast<double>(cluster.nodes);
  const auto share = [bytes](double n, double per_s) {
    return n == 1 ? 0.0 : bytes * (n - 1) / n / per_s;
  };
  return (local - 1) * cluster.inside.latency_s + (nodes - 1) * cluster.between.latency_s +
         std::max(share(local, cluster.inside.bytes_per_s),
                  share(nodes, local * cluster.between.bytes_per_s));
}

Cluster plan_cluster(const PlanArgs& args, const Config& config) {
  if (args.gpus % args.nodes != 0) {
    throw UserError(fmt::format(
        "--nodes: {} GPUs in all cannot be divided equally among {} nodes; give --gpus a multiple "
        "of {}",
        args.gpus, args.nodes, args.nodes));
  }
  const bool cuda = config.trainer.device != DeviceChoice::kCpu;
  const Hardware rank = assumed(config.trainer, cuda);
  const double of_config = config.logging.peak_tflops;
  const double tflops = args.tflops.value_or(of_config > 0 ? of_config : rank.tflops);
  const double efficiency = args.efficiency.value_or(rank.efficiency);
  const auto memory = static_cast<int64_t>(
      std::min(args.memory_gb * kGiga, static_cast<double>(int64_t{1} << 60U)));
  Cluster cluster{args.gpus, args.nodes, rank.inside, rank.between, cuda, memory};
  cluster.flops_per_s = tflops * efficiency * 1e12;
  cluster.memory_bytes_per_s = rank.memory_bytes_per_s;
  Link& slowest = args.nodes == 1 ? cluster.inside : cluster.between;
  if (args.link_gb_s) slowest.bytes_per_s = *args.link_gb_s * kGiga;
  const auto text = [&](const Link& link, std::string_view where) {
    return fmt::format("{:.4g}GB/s {} ({})", link.bytes_per_s / kGiga, where,
                       args.link_gb_s && &link == &slowest ? "--link" : "assumed");
  };
  cluster.facts = {
      fmt::format("Ranks        {} of {}, {}", counted(args.gpus, cuda ? "GPU" : "CPU rank"),
                  in_bytes(memory), counted(args.nodes, "node")),
      fmt::format("Computation  {:.4g} TFLOP/s a rank: {:.3g}% ({}) of {:.4g} ({})",
                  tflops * efficiency, 100 * efficiency,
                  args.efficiency ? "--efficiency" : "assumed", tflops,
                  args.tflops     ? "--tflops"
                  : of_config > 0 ? "logging_config.peak_tflops"
                                  : fmt::format("assumed: {}", rank.name)),
      "Links        " + (cluster.nodes == 1 ? text(cluster.inside, "between ranks")
                                            : text(cluster.inside, "within a node") + ", " +
                                                  text(cluster.between, "between nodes")),
      fmt::format("Error        {}",
                  error_text(args, cuda, config.trainer.use_amp, of_config > 0))};
  return cluster;
}

}  // namespace ddp::train
