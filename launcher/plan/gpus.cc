#include "launcher/plan/gpus.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "launcher/base/errors.h"
#include "launcher/base/system/cgroup.h"
#include "launcher/base/system/path_search.h"
#include "launcher/base/text.h"
#include "launcher/cli/option_parsers.h"
#include "launcher/plan/cpus.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

namespace fs = std::filesystem;

int count_entries(const fs::path& folder, bool (*wanted)(const std::string&)) {
  return static_cast<int>(std::ranges::count_if(paths_in(folder), [wanted](const fs::path& path) {
    return wanted(path.filename().string());
  }));
}

// A GPU or MIG instance as in CUDA_VISIBLE_DEVICES: GPU-8932f937, MIG-...
bool is_gpu_uuid(std::string_view text) {
  return text.starts_with("GPU-") || text.starts_with("MIG-");
}

bool is_gpu_node(const std::string& name) {
  return name.rfind("nvidia", 0) == 0 &&
         whole_number(std::string_view(name).substr(6)).value_or(-1) >= 0;
}

bool can_make_nodes(const std::string& root) {
  return ::access((root + "/usr/bin/nvidia-modprobe").c_str(), X_OK) == 0;
}

// GPUs split into MIG instances: CUDA sees none of them whole, and at most one instance.
int mig_gpus(const std::string& root) {
  int cut = 0;
  for (const fs::path& gpu : paths_in(root + "/proc/driver/nvidia/capabilities")) {
    const auto is_instance = [](const std::string& name) { return name.starts_with("gi"); };
    if (count_entries(gpu / "mig", is_instance) > 0) ++cut;
  }
  return cut;
}

std::vector<std::string> entries_of(const std::string& list) {
  auto entries = split_list(list, ',');
  std::transform(entries.begin(), entries.end(), entries.begin(), trimmed);
  return entries;
}

}  // namespace

MachineView MachineView::of_this_process() {
  MachineView machine;
  if (const char* root = std::getenv(kDeviceRoot)) machine.root = root;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"))
    machine.cuda_visible_devices = visible;
  if (const char* visible = std::getenv(kHipVisibleDevices)) machine.hip_visible_devices = visible;
  machine.cpus = std::max(1, static_cast<int>(cpus_of_this_thread().size()));
  machine.cpus = std::min(machine.cpus, cpu_quota(machine.root).value_or(machine.cpus));
  return machine;
}

// A container sees the driver's list of all GPUs but only its own device nodes, so the smaller
// count is right. Without any node, CUDA creates them with nvidia-modprobe or sees none.
int installed_gpus(const MachineView& machine) {
  const std::string& root = machine.root;
  const int listed =
      count_entries(root + "/proc/driver/nvidia/gpus", [](const std::string&) { return true; });
  const int nodes = count_entries(root + "/dev", is_gpu_node);
  if (nodes == 0 && fs::exists(root + "/dev/dxg")) return 1;  // WSL does not expose how many
  if (nodes == 0) return can_make_nodes(root) ? listed : 0;
  return listed == 0 ? nodes : std::min(nodes, listed);
}

std::vector<std::string> visible_gpus(const MachineView& machine) {
  const int installed = installed_gpus(machine);
  std::vector<std::string> visible;
  if (!machine.cuda_visible_devices) {
    const int whole = installed - std::min(installed, mig_gpus(machine.root));
    const int seen = installed > 0 ? std::max(1, whole) : 0;
    for (int gpu = 0; gpu < seen; ++gpu) visible.push_back(std::to_string(gpu));
    return visible;
  }
  if (installed == 0) return visible;
  std::set<std::string> seen;
  for (const std::string& entry : entries_of(*machine.cuda_visible_devices)) {
    const int index = whole_number(entry).value_or(-1);
    if (!is_gpu_uuid(entry) && (index < 0 || index >= installed))
      break;                                    // CUDA ignores everything after it
    if (!seen.insert(entry).second) return {};  // a repeated entry hides every device
    visible.push_back(entry);
  }
  return visible;
}

int count_gpus(const MachineView& machine) {
  return static_cast<int>(visible_gpus(machine).size());
}

std::vector<std::string> gpu_of_each_worker(const MachineView& machine, int workers,
                                            const std::string& option) {
  std::vector<std::string> gpus;
  const char* why = "lower --nproc_per_node";
  if (!machine.hip_visible_devices.empty()) {
    gpus = entries_of(machine.hip_visible_devices);
  } else if (machine.cuda_visible_devices) {
    gpus = entries_of(*machine.cuda_visible_devices);
    // As an only entry it hides all GPUs, which a user may want; another worker would lack its own.
    const auto hides = [](const std::string& one) { return one.empty() || one.front() == '-'; };
    if (const auto end = std::ranges::find_if(gpus, hides); gpus.size() > 1 && end != gpus.end()) {
      why = "CUDA ignores what follows an empty or negative entry of CUDA_VISIBLE_DEVICES";
      gpus.erase(end, gpus.end());
    }
  } else if (installed_gpus(machine) > 0) {
    gpus = visible_gpus(machine);
  } else {
    for (int gpu = 0; gpu < workers; ++gpu) gpus.push_back(std::to_string(gpu));
  }
  if (static_cast<int>(gpus.size()) < workers) {
    throw LaunchError(kExitUsage, fmt::format("--{} needs a GPU for each of {} workers, but only "
                                              "{} {} visible; {}",
                                              option, workers, gpus.size(),
                                              gpus.size() == 1 ? "is" : "are", why));
  }
  return gpus;
}

int local_world_size(const std::string& value, const MachineView& machine) {
  if (const auto number = parse_local_world_size(value)) return *number;
  if (value == "cpu") return machine.cpus;
  if (const int gpus = count_gpus(machine); gpus > 0) return gpus;
  if (value == "auto") return machine.cpus;
  if (installed_gpus(machine) > 0) {
    throw LaunchError(kExitUsage, fmt::format("--nproc_per_node=gpu, but CUDA_VISIBLE_DEVICES='{}' "
                                              "hides every GPU; unset it, or use cpu or a number",
                                              machine.cuda_visible_devices.value_or("")));
  }
  throw LaunchError(kExitUsage,
                    "--nproc_per_node=gpu, but no NVIDIA GPU was found; use cpu or a number");
}

}  // namespace ddp::launch
