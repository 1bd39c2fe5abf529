#include "launcher/plan/numa_binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "launcher/base/errors.h"
#include "launcher/base/system/path_search.h"
#include "launcher/base/system/proc_files.h"
#include "launcher/base/text.h"
#include "launcher/plan/cpus.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

namespace fs = std::filesystem;
using Cpus = std::vector<int>;

int number_of(const fs::path& file) { return whole_number(first_line(file)).value_or(0); }

Cpus in_both(const Cpus& a, const Cpus& b) {
  Cpus both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

bool has_device_file(const std::string& information, const std::string& root) {
  constexpr std::string_view kMinor = "Device Minor:";
  const auto at = information.find(kMinor);
  if (at == std::string::npos) return true;
  const auto number = at + kMinor.size();
  return fs::exists(root + "/dev/nvidia" +
                    trimmed(information.substr(number, information.find('\n', number) - number)));
}

// What the driver says of each GPU, by PCI address. A container may list the machine's other GPUs,
// too, but has no device files of them: CUDA does not count those.
std::map<std::string, std::string> listed_gpus(const std::string& root) {
  std::map<std::string, std::string> all;
  for (const fs::path& gpu : paths_in(root + "/proc/driver/nvidia/gpus")) {
    std::ifstream information(gpu / "information");
    all[gpu.filename()] = {std::istreambuf_iterator<char>(information), {}};
  }
  auto own = all;
  std::erase_if(own, [&](const auto& gpu) { return !has_device_file(gpu.second, root); });
  return own.empty() ? all : own;  // a freshly booted machine has no device files
}

class Topology {
 public:
  explicit Topology(const NumaView& view) : view_(view) {
    for (const fs::path& folder : paths_in(view.root + "/sys/devices/system/node")) {
      const std::string name = folder.filename();
      const auto node = name.starts_with("node") ? whole_number(name.substr(4)) : std::nullopt;
      if (!node) continue;
      const Cpus cpus = usable(first_line(folder / "cpulist"));
      if (!cpus.empty()) nodes_[*node] = cpus;
    }
    if (nodes_.empty()) nodes_[0] = view.affinity;  // a kernel without NUMA
  }

  std::vector<int> nodes() const {
    std::vector<int> all;
    for (const auto& [node, cpus] : nodes_) all.push_back(node);
    return all;
  }
  Cpus node(int node) const {
    const auto found = nodes_.find(node);
    return found == nodes_.end() ? Cpus{} : found->second;
  }
  Cpus socket_of(int node) const {
    const Cpus own = this->node(node);
    if (own.empty()) return {};
    Cpus all;
    for (const auto& [other, cpus] : nodes_) {
      if (socket(cpus.front()) == socket(own.front()))
        all.insert(all.end(), cpus.begin(), cpus.end());
    }
    std::sort(all.begin(), all.end());
    return all;
  }
  /// Groups of CPUs that share it, keyed by the smallest.
  std::vector<Cpus> cores(int node) const {
    return grouped(node, [&](int cpu) {
      return smallest(first_line(cpu_folder(cpu) / "topology/thread_siblings_list"), cpu);
    });
  }
  /// The same, larger groups first.
  std::vector<Cpus> complexes(int node) const {
    auto groups = grouped(node, [&](int cpu) { return smallest(largest_cache(cpu), cpu); });
    std::stable_sort(groups.begin(), groups.end(),
                     [](const Cpus& a, const Cpus& b) { return a.size() > b.size(); });
    return groups;
  }

 private:
  fs::path cpu_folder(int cpu) const {
    return fmt::format("{}/sys/devices/system/cpu/cpu{}", view_.root, cpu);
  }
  Cpus usable(const std::string& list) const {
    return in_both(parse_cpu_list(list), view_.affinity);
  }
  int socket(int cpu) const { return number_of(cpu_folder(cpu) / "topology/physical_package_id"); }
  static int smallest(const std::string& list, int cpu) {
    const Cpus cpus = parse_cpu_list(list);
    return cpus.empty() ? cpu : cpus.front();
  }
  // The CPUs that share it.
  std::string largest_cache(int cpu) const {
    std::string sharers;
    int top = -1;
    for (const fs::path& folder : paths_in(cpu_folder(cpu) / "cache")) {
      const bool is_cache = folder.filename().string().starts_with("index");
      if (!is_cache || first_line(folder / "type") == "Instruction") continue;
      const int level = number_of(folder / "level");
      if (level <= top) continue;
      top = level;
      sharers = first_line(folder / "shared_cpu_list");
    }
    return sharers;
  }
  template <typename Key>
  std::vector<Cpus> grouped(int node, Key key) const {
    std::map<int, Cpus> groups;
    for (const int cpu : this->node(node)) groups[key(cpu)].push_back(cpu);
    std::vector<Cpus> result;
    for (auto& [first, cpus] : groups) result.push_back(cpus);
    return result;
  }

  const NumaView& view_;
  std::map<int, Cpus> nodes_;  // that have a usable CPU
};

// Share `index` of `count`: whole cores; the first shares get one more if they do not divide
// evenly.
Cpus share_of(const std::vector<Cpus>& cores, std::size_t index, std::size_t count) {
  const std::size_t each = cores.size() / count;
  const std::size_t extra = cores.size() % count;
  const std::size_t begin = index * each + std::min(index, extra);
  const std::size_t end = begin + each + (index < extra ? 1 : 0);
  Cpus cpus;
  for (std::size_t i = begin; i < end; ++i) {
    cpus.insert(cpus.end(), cores[i].begin(), cores[i].end());
  }
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

std::vector<int> nodes_of_workers(const std::vector<std::string>& gpus, int workers,
                                  const NumaView& view, const Topology& topology) {
  const std::vector<int> all = topology.nodes();
  std::vector<int> nodes;
  for (int worker = 0; worker < workers; ++worker) {
    const auto gpu = static_cast<std::size_t>(worker);
    const auto own = gpu < gpus.size() ? numa_node_of_gpu(gpus[gpu], view) : std::nullopt;
    // Dealt out, instances of one GPU would come to all nodes.
    if (!own && all.size() > 1 && gpu < gpus.size() && gpus[gpu].starts_with("MIG-")) {
      throw LaunchError(kExitUsage,
                        fmt::format("--numa-binding: the driver's files do not show the NUMA node "
                                    "of {}; omit it, or start ddp-run under taskset",
                                    gpus[gpu]));
    }
    nodes.push_back(own ? *own : all[gpu * all.size() / static_cast<std::size_t>(workers)]);
  }
  return nodes;
}

}  // namespace

std::optional<int> numa_node_of_gpu(const std::string& gpu, const NumaView& view) {
  int left = whole_number(gpu).value_or(-1);
  for (const auto& [address, text] : listed_gpus(view.root)) {
    const bool named = gpu.starts_with("GPU-") && text.find(gpu) != std::string::npos;
    if (!named && left-- != 0) continue;
    // Machines with a single node report -1.
    const fs::path device = view.root + "/sys/bus/pci/devices/" + address;
    return std::max(0, number_of(device / "numa_node"));
  }
  return std::nullopt;
}

std::vector<std::vector<int>> bind_to_numa(NumaBinding how, const std::vector<std::string>& gpus,
                                           int workers, const NumaView& view) {
  const Topology topology(view);
  const auto nodes = nodes_of_workers(gpus, workers, view, topology);
  std::vector<Cpus> bound;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const int node = nodes[i];
    const auto before = static_cast<std::size_t>(
        std::count(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(i), node));
    const auto sharers = static_cast<std::size_t>(std::count(nodes.begin(), nodes.end(), node));
    switch (how) {
      case NumaBinding::kNode:
        bound.push_back(topology.node(node));
        break;
      case NumaBinding::kSocket:
        bound.push_back(topology.socket_of(node));
        break;
      case NumaBinding::kExclusive:
        bound.push_back(share_of(topology.cores(node), before, sharers));
        break;
      case NumaBinding::kCoreComplex: {
        const auto groups = topology.complexes(node);
        bound.push_back(groups.empty() ? Cpus{} : groups[before % groups.size()]);
        break;
      }
    }
    if (bound.back().empty()) {
      throw LaunchError(
          kExitUsage, fmt::format("--numa-binding: NUMA node {} has no CPU left for local rank {}; "
                                  "use another mode or fewer workers, or omit it",
                                  node, i));
    }
  }
  return bound;
}

int threads_that_fit(const std::vector<std::vector<int>>& bound, int threads) {
  for (const Cpus& cpus : bound) {
    const auto sharers = std::count(bound.begin(), bound.end(), cpus);
    threads = std::min(threads, std::max(1, static_cast<int>(std::ssize(cpus) / sharers)));
  }
  return threads;
}

}  // namespace ddp::launch
