#include "trainer/app/plan/plan_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include "trainer/metrics/text.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"

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

struct AssumedLinks {
  Link inside;
  Link between;
  std::string_view what_inside;
  std::string_view what_between;
};

/// For GPUs NVLink as NCCL uses it (370GB/s for large messages, 150GB/s for 58MB among eight), and
/// 400GB/s for a node of eight; for CPUs as measured in docs/performance.md.
AssumedLinks assumed_links(bool cuda) {
  if (cuda) {
    return {{29 * kMicro, 370 * kGiga},
            {29 * kMicro, 50 * kGiga},
            "NVLink of an H100",
            "a 400 Gb/s adapter for each GPU"};
  }
  return {{12 * kMicro, 3.5 * kGiga}, {120 * kMicro, 0.93 * kGiga}, "shared memory", "sockets"};
}

[[noreturn]] void refuse_doctor(const std::string& file, const std::string& why) {
  throw UserError(fmt::format(
      "--doctor: {}: {}; write it with ddp-run --standalone --nproc_per_node=N trainer doctor "
      "--json > {}",
      file, why, file));
}

nlohmann::json doctor_report(const std::string& path) {
  std::ostringstream stream;
  stream << std::ifstream(path).rdbuf();  // of a folder nothing
  const std::string text = stream.str();
  if (text.empty()) refuse_doctor(path, "cannot be read or is empty");
  if (nests_too_deeply(text)) refuse_doctor(path, "is not a report of doctor");
  auto report = nlohmann::json::parse(text, nullptr, false);
  if (!report.is_object() || !report.contains("Collectives"))
    refuse_doctor(path, "is not a report of doctor");
  return report["Collectives"];
}

struct DoctorFile {
  int64_t ranks = 0;
  Link link;
};

DoctorFile read_doctor(const std::string& path) {
  DoctorFile result;
  std::vector<TimedAllReduce> runs;
  std::set<double> sizes;
  try {
    const auto collectives = doctor_report(path);
    result.ranks = collectives.at("ranks").get<int64_t>();
    for (const auto& run : collectives.at("runs")) {
      if (run.at("name") != "all_reduce") continue;
      runs.push_back({run.at("bytes").get<double>(), run.at("median_us").get<double>() * kMicro});
      sizes.insert(runs.back().bytes);
    }
  } catch (const nlohmann::json::exception&) {
    refuse_doctor(path, "is not a report of doctor");
  }
  if (result.ranks < 2) refuse_doctor(path, "was measured on one rank, links need two");
  if (sizes.size() < 2) refuse_doctor(path, "lacks all-reduces of two sizes");
  result.link = fitted_link(runs, result.ranks);
  if (result.link.bytes_per_s <= 0)
    refuse_doctor(path, "its larger all-reduces took no longer than the small ones");
  return result;
}

void check_nodes(const PlanArgs& args) {
  if (args.gpus % args.nodes == 0) return;
  throw UserError(fmt::format(
      "--nodes: {} GPUs in all cannot be divided equally among {} nodes; give --gpus a multiple "
      "of {}",
      args.gpus, args.nodes, args.nodes));
}

std::string in_gb_per_s(double bytes_per_s) {
  return fmt::format("{:.4g}GB/s", bytes_per_s / kGiga);
}

/// Fits both kinds of links: what doctor measured on all ranks has the slower one in it.
std::string take_doctor(const std::string& path, Network& network) {
  const DoctorFile doctor = read_doctor(path);
  if (network.nodes > 1 && doctor.ranks != network.ranks) {
    throw UserError(fmt::format(
        "--doctor: {} was measured on {} ranks; for several nodes measure on all {} ranks, or give "
        "--link instead",
        path, doctor.ranks, network.ranks));
  }
  network.nodes = 1;
  network.inside = network.between = doctor.link;
  return fmt::format("{} and {:.1f} us between ranks (measured on {}: {})",
                     in_gb_per_s(doctor.link.bytes_per_s), doctor.link.latency_s / kMicro,
                     counted(doctor.ranks, "rank"), path);
}

std::string take_links(const PlanArgs& args, bool cuda, Network& network) {
  if (args.doctor) return take_doctor(*args.doctor, network);
  const AssumedLinks assumed = assumed_links(cuda);
  network.inside = assumed.inside;
  network.between = assumed.between;
  const bool one_node = network.nodes == 1;
  if (args.link_gb_s)
    (one_node ? network.inside : network.between).bytes_per_s = *args.link_gb_s * kGiga;
  const auto text = [](const Link& link, std::string_view what, bool given) {
    return fmt::format("{} ({})", in_gb_per_s(link.bytes_per_s),
                       given ? "--link" : fmt::format("assumed: {}", what));
  };
  const bool given = args.link_gb_s.has_value();
  const std::string inside = text(network.inside, assumed.what_inside, one_node && given);
  if (one_node) return fmt::format("{} within the node", inside);
  return fmt::format("{} within a node, {} between nodes", inside,
                     text(network.between, assumed.what_between, given));
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

PlanCluster plan_cluster(const PlanArgs& args, const Config& config) {
  constexpr double kGpuMemory = 3000 * kGiga;  // an H100's, sustained
  constexpr double kCpuMemory = 14 * kGiga;    // one core's
  check_nodes(args);
  PlanCluster result;
  Cluster& cluster = result.cluster;
  cluster.cuda = config.trainer.device != DeviceChoice::kCpu;
  cluster.network.ranks = args.gpus;
  cluster.network.nodes = args.nodes;
  cluster.memory_bytes = static_cast<int64_t>(
      std::min(args.memory_gb * kGiga, static_cast<double>(int64_t{1} << 60U)));
  cluster.memory_bytes_per_s = cluster.cuda ? kGpuMemory : kCpuMemory;
  const std::string kind = cluster.cuda ? "GPU" : "CPU rank";
  result.facts = {fmt::format("Ranks        {} of {}, {}", counted(args.gpus, kind),
                              in_bytes(cluster.memory_bytes), counted(args.nodes, "node")),
                  fmt::format("Computation  {}", take_speed(args, config, cluster)),
                  fmt::format("Links        {}", take_links(args, cluster.cuda, cluster.network))};
  return result;
}

}  // namespace ddp::train
