#include "trainer/parallel/device/device_plan.h"

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "trainer/parallel/device/cuda_module.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/process/host_name.h"

namespace ddp::train {
namespace {

/// Whether ddp-run was asked for GPUs, whose user wants no CPU then.
bool started_for_each_gpu() { return std::getenv(launch::kWorkerPerGpu) != nullptr; }

/// Null, with the reason, when no GPU can be used.
CudaModule* usable_cuda(std::string& why_not) {
  CudaModule* module = load_cuda_module(&why_not);
  if (module == nullptr || module->device_count() > 0) return module;
  why_not = module->why_no_device();
  return nullptr;
}

std::string how(const RankDevice& rank) {
  return fmt::format("{} with {}", rank.gpu.empty() ? "the CPU" : "a GPU", rank.backend);
}

void check_same_kind(const std::vector<RankDevice>& ranks) {
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    if (how(ranks[i]) == how(ranks[0])) continue;
    const auto& on_cpu = ranks[i].gpu.empty() ? ranks[i] : ranks[0];
    throw UserError(fmt::format(
        "rank 0 (host {}) computes on {}, but rank {} (host {}) on {}{}; all ranks need the same: "
        "check the nodes with trainer doctor, or set trainer_config.device=cpu",
        ranks[0].host, how(ranks[0]), i, ranks[i].host, how(ranks[i]),
        on_cpu.why_cpu.empty() ? "" : fmt::format(", because {}", on_cpu.why_cpu)));
  }
}

void check_own_gpus(const std::vector<RankDevice>& ranks) {
  std::map<std::string, std::size_t> users;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].backend != "nccl") continue;
    const auto [first, is_new] = users.emplace(ranks[i].gpu, i);
    if (is_new) continue;
    throw UserError(fmt::format(
        "ranks {} and {} (host {}) share the GPU {}, and NCCL needs one for each rank; start with "
        "--nproc_per_node=gpu, or set distributed_config.ranks_per_device to share it by Gloo",
        first->second, i, ranks[i].host, ranks[i].gpu));
  }
}

void check_ranks_of_devices(const std::vector<RankDevice>& ranks, int64_t most) {
  std::map<std::pair<std::string, std::string>, int64_t> users;
  for (const auto& rank : ranks) ++users[{rank.host, rank.gpu}];
  for (const auto& [device, count] : users) {
    if (count <= most) continue;
    const auto& [host, gpu] = device;
    throw UserError(fmt::format(
        "distributed_config.ranks_per_device={}: {} ranks share {} of host {}; raise it, or start "
        "fewer ranks with --nproc_per_node",
        most, count, gpu.empty() ? "the CPUs" : "the GPU " + gpu, host));
  }
}

// One after the other is filled; without the key, the ranks go round.
int gpu_of_rank(const DistributedConfig& config, int local_rank, int gpus) {
  const auto ranks = static_cast<int>(config.ranks_per_device.value_or(1));
  return local_rank / ranks % gpus;
}

}  // namespace

DevicePlan plan_device(DeviceChoice choice, const DistributedConfig& config, const DistEnv& env) {
  DevicePlan plan;
  if (choice == DeviceChoice::kCpu) return plan;
  const bool demanded = choice == DeviceChoice::kCuda || config.backend == Backend::kNccl;
  if (!demanded && !started_for_each_gpu() && !nvidia_device_visible()) return plan;
  CudaModule* cuda = usable_cuda(plan.why_cpu);
  if (cuda == nullptr) {
    if (started_for_each_gpu() && loaded_cuda_module() == nullptr) {
      throw UserError(fmt::format(
          "ddp-run started a rank for each GPU (--nproc_per_node=gpu), but {}; build it with CUDA "
          "(./scripts/setup.sh --gpu, then ./scripts/build.sh), or set trainer_config.device=cpu",
          plan.why_cpu));
    }
    if (!demanded) return plan;
    throw UserError(fmt::format(
        "trainer_config.device=cuda or distributed_config.backend=nccl was asked for, but {}; "
        "use device=cpu backend=gloo, or run `trainer doctor`",
        plan.why_cpu));
  }
  const bool shared = config.ranks_per_device.value_or(1) > 1;
  plan.nccl = config.backend != Backend::kGloo && !shared;
  const int devices = cuda->device_count();
  if (plan.nccl && env.local_world_size > devices && devices > 1) {
    throw UserError(
        fmt::format("{} local ranks, but this node shows {} GPUs; start with --nproc_per_node=gpu",
                    env.local_world_size, devices));
  }
  // One visible device per rank (CUDA_VISIBLE_DEVICES set by the launcher) leaves index 0 to each.
  const int index = gpu_of_rank(config, env.local_rank, devices);
  cuda->set_device(index);
  plan.device = torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
  plan.gpu = cuda->uuid(index);
  return plan;
}

RankDevice RankDevice::of(const DevicePlan& plan) {
  return {host_name(), plan.backend_name(), plan.gpu, plan.why_cpu};
}

std::string RankDevice::to_json() const {
  return nlohmann::json{{"host", host}, {"backend", backend}, {"gpu", gpu}, {"why_cpu", why_cpu}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RankDevice RankDevice::from_json(const std::string& json) {
  const auto object = nlohmann::json::parse(json);
  return {object.at("host"), object.at("backend"), object.at("gpu"), object.at("why_cpu")};
}

void check_rank_devices(const std::vector<RankDevice>& ranks,
                        std::optional<int64_t> ranks_per_device) {
  if (ranks.empty()) return;
  check_same_kind(ranks);
  check_own_gpus(ranks);
  if (ranks_per_device) check_ranks_of_devices(ranks, *ranks_per_device);
}

}  // namespace ddp::train
