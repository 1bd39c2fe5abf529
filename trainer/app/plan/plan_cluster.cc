#include "trainer/app/plan/plan_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "trainer/config/config.h"
#include "trainer/metrics/text.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

constexpr double kGiga = 1e9;

// NVLink as NCCL uses it: 370GB/s for large messages, 150GB/s for 58MB among eight. An adapter of
// 400 Gb/s for each H100. For CPU ranks what docs/performance.md measured.
constexpr Link kNvLink{29e-6, 370e9}, kAdapter{29e-6, 50e9};
constexpr Link kSharedMemory{12e-6, 3.5e9}, kSockets{120e-6, 0.93e9};
constexpr double kH100Memory = 3000e9, kCoreMemory = 14e9;  // bytes/s, sustained

/// What a rank is assumed to compute.
struct Speed {
  std::string name;
  double tflops;      ///< Peak.
  double efficiency;  ///< Share of it that training attains.
};

/// An H100's dense peak, of which llm.c and Megatron-LM attain that share at least, or a thread of
/// a CPU as measured in docs/performance.md.
Speed assumed_speed(const TrainerConfig& trainer, bool cuda) {
  if (!cuda && trainer.use_amp) return {"core with AVX-512", 0.506, 0.21};
  if (!cuda) return {"core with AVX-512", 0.129, 0.65};
  if (trainer.use_amp) return {"H100, 16-bit", 989.0, 0.4};
  if (trainer.tf32) return {"H100, TF32", 494.5, 0.4};
  return {"H100, float32", 67.0, 0.4};
}

/// How far plans were from measurements with such speeds, docs/choosing-a-strategy.md.
std::string_view error_text(const PlanArgs& args, const Config& config, bool cuda) {
  if (!cuda) {
    return args.tflops && args.efficiency && args.link_gb_s
               ? "step -17 to +2 % on 2 ranks with measured speeds, memory -7 to +6 %"
               : "step unmeasured without --tflops, --efficiency and --link, memory -7 to +6 %";
  }
  const bool given =
      args.tflops || args.efficiency || args.link_gb_s || config.logging.peak_tflops > 0;
  return given || args.nodes > 1 || !config.trainer.use_amp
             ? "step and memory unmeasured"
             : "step within 25 % of published runs on 8 H100s, memory unmeasured";
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
  const Speed assumed = assumed_speed(config.trainer, cuda);
  const double of_config = config.logging.peak_tflops;
  const double tflops = args.tflops.value_or(of_config > 0 ? of_config : assumed.tflops);
  const double efficiency = args.efficiency.value_or(assumed.efficiency);
  const auto memory = static_cast<int64_t>(std::min(args.memory_gb * kGiga, 0x1p60));
  Cluster cluster{
      args.gpus, args.nodes, cuda ? kNvLink : kSharedMemory, cuda ? kAdapter : kSockets,
      cuda,      memory,     tflops * efficiency * 1e12,     cuda ? kH100Memory : kCoreMemory};
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
                                  : fmt::format("assumed: {}", assumed.name)),
      "Links        " + (cluster.nodes == 1 ? text(cluster.inside, "between ranks")
                                            : text(cluster.inside, "within a node") + ", " +
                                                  text(cluster.between, "between nodes")),
      fmt::format("Error        {}", error_text(args, config, cuda))};
  return cluster;
}

}  // namespace ddp::train
