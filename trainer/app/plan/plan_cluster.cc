#include "trainer/app/plan/plan_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>

#include "trainer/config/config.h"
#include "trainer/metrics/text.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;
constexpr double kMicro = 1e-6;

struct AssumedSpeed {
  double tflops;
  double efficiency;
  std::string_view what;
};

/// One CPU thread as measured in docs/performance.md, or an H100's dense peak and the share of it
/// that llm.c and Megatron-LM attain at least.
AssumedSpeed assumed_speed(const TrainerConfig& trainer, bool cuda) {
  constexpr double kAttained = 0.4;
  if (!cuda) {
    return trainer.use_amp ? AssumedSpeed{0.506, 0.21, "one core with AVX-512, bfloat16"}
                           : AssumedSpeed{0.129, 0.65, "one core with AVX-512, float32"};
  }
  if (trainer.use_amp) return {989.0, kAttained, "H100, 16-bit"};
  if (trainer.tf32) return {494.5, kAttained, "H100, TF32"};
  return {67.0, kAttained, "H100, float32"};
}

/// For GPUs NVLink as NCCL uses it (370GB/s for large messages, 150GB/s for 58MB among eight), and
/// 400GB/s for a node of eight; for CPUs as measured in docs/performance.md.
void assume_links(Cluster& cluster) {
  cluster.inside = {(cluster.cuda ? 29 : 12) * kMicro, (cluster.cuda ? 370 : 3.5) * kGiga};
  cluster.between = {(cluster.cuda ? 29 : 120) * kMicro, (cluster.cuda ? 50 : 0.93) * kGiga};
}

[[noreturn]] void refuse_doctor(const std::string& file, const std::string& why) {
  throw UserError(fmt::format(
      "--doctor: {}: {}; write it with ddp-run --standalone --nproc_per_node=N trainer doctor "
      "--json > {}",
      file, why, file));
}

/// The smallest and the largest all-reduce of a ring of N ranks, which take 2 (N - 1) latency +
/// 2 bytes (N - 1) / N / bandwidth.
Link fitted_link(const nlohmann::json& runs, double ranks, const std::string& path) {
  double small = 0.0, small_s = 0.0, large = 0.0, large_s = 0.0;
  for (const auto& run : runs) {
    if (run.at("name") != "all_reduce") continue;
    const auto bytes = run.at("bytes").get<double>();
    const double seconds = run.at("median_us").get<double>() * kMicro;
    if (small == 0.0 || bytes < small) std::tie(small, small_s) = std::pair(bytes, seconds);
    if (bytes > large) std::tie(large, large_s) = std::pair(bytes, seconds);
  }
  if (!(large_s > small_s))
    refuse_doctor(path, "lacks an all-reduce that took longer than a smaller one");
  const double slope = (large_s - small_s) / (large - small);
  return {std::max(0.0, small_s - slope * small) / (2 * (ranks - 1)),
          2 * (ranks - 1) / ranks / slope};
}

/// One kind of links: what doctor measured on all ranks has the slower ones in it.
std::string take_doctor(const std::string& path, Cluster& cluster) {
  int64_t ranks = 0;
  try {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();  // of a folder nothing
    const auto report = nlohmann::json::parse(text.str()).at("Collectives");
    ranks = report.at("ranks").get<int64_t>();
    if (ranks < 2) refuse_doctor(path, "was measured on one rank, links need two");
    cluster.inside = cluster.between =
        fitted_link(report.at("runs"), static_cast<double>(ranks), path);
  } catch (const nlohmann::json::exception&) {
    refuse_doctor(path, "cannot be read, or is not a report of doctor");
  }
  if (cluster.nodes > 1 && ranks != cluster.ranks) {
    throw UserError(fmt::format(
        "--doctor: {} was measured on {} ranks; for several nodes measure on all {} ranks, or give "
        "--link instead",
        path, ranks, cluster.ranks));
  }
  cluster.nodes = 1;
  return fmt::format("{:.4g}GB/s and {:.1f} us between ranks (measured on {}: {})",
                     cluster.inside.bytes_per_s / kGiga, cluster.inside.latency_s / kMicro,
                     counted(ranks, "rank"), path);
}

std::string take_links(const PlanArgs& args, Cluster& cluster) {
  if (args.doctor) return take_doctor(*args.doctor, cluster);
  assume_links(cluster);
  const bool one_node = cluster.nodes == 1;
  if (args.link_gb_s)
    (one_node ? cluster.inside : cluster.between).bytes_per_s = *args.link_gb_s * kGiga;
  const auto text = [&](const Link& link, bool given, std::string_view gpus,
                        std::string_view cpus) {
    return fmt::format("{:.4g}GB/s ({}{})", link.bytes_per_s / kGiga, given ? "" : "assumed: ",
                       given          ? "--link"
                       : cluster.cuda ? gpus
                                      : cpus);
  };
  const bool given = args.link_gb_s.has_value();
  const std::string inside =
      text(cluster.inside, one_node && given, "NVLink of an H100", "shared memory");
  if (one_node) return fmt::format("{} within the node", inside);
  return fmt::format("{} within a node, {} between nodes", inside,
                     text(cluster.between, given, "a 400 Gb/s adapter for each GPU", "sockets"));
}

std::string take_speed(const PlanArgs& args, const Config& config, Cluster& cluster) {
  const AssumedSpeed assumed = assumed_speed(config.trainer, cluster.cuda);
  const double of_config = config.logging.peak_tflops;
  const double tflops = args.tflops.value_or(of_config > 0 ? of_config : assumed.tflops);
  const double efficiency = args.efficiency.value_or(assumed.efficiency);
  cluster.flops_per_s = tflops * efficiency * kTera;
  const std::string source = args.tflops     ? "--tflops"
                             : of_config > 0 ? "logging_config.peak_tflops"
                                             : fmt::format("assumed: {}", assumed.what);
  return fmt::format("{:.4g} TFLOP/s a rank: {:.3g}% ({}) of {:.4g} ({})", tflops * efficiency,
                     100 * efficiency, args.efficiency ? "--efficiency" : "assumed", tflops,
                     source);
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
  constexpr double kGpuMemory = 3000 * kGiga;  // an H100's, sustained
  constexpr double kCpuMemory = 14 * kGiga;    // one core's
  if (args.gpus % args.nodes != 0) {
    throw UserError(fmt::format(
        "--nodes: {} GPUs in all cannot be divided equally among {} nodes; give --gpus a multiple "
        "of {}",
        args.gpus, args.nodes, args.nodes));
  }
  Cluster cluster;
  cluster.ranks = args.gpus;
  cluster.nodes = args.nodes;
  cluster.cuda = config.trainer.device != DeviceChoice::kCpu;
  cluster.memory_bytes = static_cast<int64_t>(
      std::min(args.memory_gb * kGiga, static_cast<double>(int64_t{1} << 60U)));
  cluster.memory_bytes_per_s = cluster.cuda ? kGpuMemory : kCpuMemory;
  cluster.facts = {fmt::format("Ranks        {} of {}, {}",
                               counted(args.gpus, cluster.cuda ? "GPU" : "CPU rank"),
                               in_bytes(cluster.memory_bytes), counted(args.nodes, "node")),
                   fmt::format("Computation  {}", take_speed(args, config, cluster)),
                   fmt::format("Links        {}", take_links(args, cluster))};
  return cluster;
}

}  // namespace ddp::train
