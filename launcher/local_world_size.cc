#include "launcher/local_world_size.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>

#include "launcher/console.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

namespace fs = std::filesystem;

std::optional<int> whole_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

int count_entries(const fs::path& folder, bool (*wanted)(const std::string&)) {
  std::error_code error;
  int count = 0;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (wanted(it->path().filename().string())) ++count;
  }
  return count;
}

bool is_gpu_node(const std::string& name) {
  return name.rfind("nvidia", 0) == 0 &&
         whole_number(std::string_view(name).substr(6)).value_or(-1) >= 0;
}

// A container sees the driver's list of all GPUs but only the device nodes that it was given: the
// smaller one counts.
int installed_gpus(const std::string& root) {
  const int listed =
      count_entries(root + "/proc/driver/nvidia/gpus", [](const std::string&) { return true; });
  const int nodes = count_entries(root + "/dev", is_gpu_node);
  return nodes == 0 || listed == 0 ? std::max(nodes, listed) : std::min(nodes, listed);
}

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool is_uuid(const std::string& entry) {
  return entry.rfind("GPU-", 0) == 0 || entry.rfind("MIG-", 0) == 0;
}

int affinity_cpus() {
  // Machines with more CPUs than a cpu_set_t holds make the call fail: ask again with a larger set.
  for (int cpus = 1024; cpus <= 1 << 18; cpus *= 4) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(cpus),
                                                               [](cpu_set_t* s) { CPU_FREE(s); });
    const std::size_t size = CPU_ALLOC_SIZE(cpus);
    if (::sched_getaffinity(0, size, set.get()) == 0)
      return std::max(1, CPU_COUNT_S(size, set.get()));
  }
  return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

[[noreturn]] void bad_value(const std::string& value) {
  throw LaunchError(
      kExitUsage,
      fmt::format("--nproc_per_node={}: must be a number of at least 1, gpu, cpu or auto", value));
}

}  // namespace

MachineView MachineView::of_this_process() {
  MachineView machine;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"))
    machine.cuda_visible_devices = visible;
  machine.cpus = affinity_cpus();
  return machine;
}

std::vector<std::string> visible_gpus(const MachineView& machine) {
  const int installed = installed_gpus(machine.root);
  std::vector<std::string> visible;
  if (!machine.cuda_visible_devices) {
    for (int gpu = 0; gpu < installed; ++gpu) visible.push_back(std::to_string(gpu));
    return visible;
  }
  if (installed == 0) return visible;
  std::set<std::string> seen;
  std::string rest = *machine.cuda_visible_devices + ",";
  for (std::size_t comma; (comma = rest.find(',')) != std::string::npos; rest.erase(0, comma + 1)) {
    const std::string entry = trimmed(rest.substr(0, comma));
    const int index = whole_number(entry).value_or(-1);
    if (!is_uuid(entry) && (index < 0 || index >= installed))
      break;                                    // CUDA ignores all that follows
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
  if (machine.cuda_visible_devices) {
    std::string rest = *machine.cuda_visible_devices + ",";
    for (std::size_t comma; (comma = rest.find(',')) != std::string::npos; rest.erase(0, comma + 1))
      gpus.push_back(trimmed(rest.substr(0, comma)));
  } else if (installed_gpus(machine.root) > 0) {
    gpus = visible_gpus(machine);
  } else {
    for (int gpu = 0; gpu < workers; ++gpu) gpus.push_back(std::to_string(gpu));
  }
  if (static_cast<int>(gpus.size()) < workers) {
    throw LaunchError(
        kExitUsage,
        fmt::format("--{} gives each of {} workers a GPU of its own, but {} can be seen; "
                    "lower --nproc_per_node",
                    option, workers, gpus.size()));
  }
  return gpus;
}

int local_world_size(const std::string& value, const MachineView& machine) {
  if (value == "cpu") return machine.cpus;
  if (value == "auto") {
    const int gpus = count_gpus(machine);
    return gpus > 0 ? gpus : machine.cpus;
  }
  if (value == "gpu") {
    const int gpus = count_gpus(machine);
    if (gpus > 0) return gpus;
    if (installed_gpus(machine.root) > 0) {
      throw LaunchError(
          kExitUsage,
          fmt::format("--nproc_per_node=gpu, but CUDA_VISIBLE_DEVICES='{}' leaves no GPU; "
                      "tip: unset it, or use =cpu or a number",
                      machine.cuda_visible_devices.value_or("")));
    }
    throw LaunchError(
        kExitUsage,
        "--nproc_per_node=gpu, but this machine shows no NVIDIA GPU; tip: =cpu or a number");
  }
  const auto number = whole_number(value);
  if (!number || *number < 1) bad_value(value);
  return *number;
}

}  // namespace ddp::launch
