#include "trainer/parallel/mesh/nccl_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "trainer/parallel/device/cuda_module.h"
#include "trainer/parallel/device/device_progress.h"

namespace ddp::train {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};
// For the rank that is waited for: its error is the one to be seen first.
constexpr std::chrono::milliseconds kHeadStart{1000};

}  // namespace

NcclWatch::NcclWatch(const Mesh& mesh, double timeout_s, Failed failed)
    : rank_(mesh.world().rank()), timeout_s_(timeout_s), failed_(std::move(failed)) {
  using Type = c10d::ProcessGroup::BackendType;
  for (const ProcessGroup* group : {&mesh.world(), &mesh.data(), &mesh.copies(), &mesh.pipeline(),
                                    &mesh.tensor(), &mesh.model()}) {
    const auto& c10d = group->c10d();
    if (!c10d || c10d->getBackendType() != Type::NCCL) continue;
    auto communicator = c10d->getBackend(torch::kCUDA);
    if (std::find(communicators_.begin(), communicators_.end(), communicator) ==
        communicators_.end())
      communicators_.push_back(std::move(communicator));
  }
  if (!communicators_.empty() && end_.fd() >= 0) thread_ = std::thread([this] { look(); });
}

NcclWatch::~NcclWatch() {
  end_.raise();
  if (thread_.joinable()) thread_.join();
}

void NcclWatch::look() {
  while (!end_.wait_for(kBetweenLooks)) {
    if (DeviceGivenUp::now()) continue;  // an abort is expected
    for (const auto& each : communicators_) {
      if (each->getError() == c10d::ErrorType::SUCCESS) continue;
      return failed_(what_happened(*each));
    }
  }
}

std::string NcclWatch::what_happened(c10d::Backend& communicator) const {
  if (communicator.getError() != c10d::ErrorType::TIMEOUT) {
    return fmt::format(
        "rank {}: NCCL failed: {}; another rank or the network to it may be gone: see the other "
        "ranks' errors, then check their machines (NCCL_DEBUG=INFO in the environment prints more)",
        rank_, loaded_cuda_module()->nccl_error(communicator));
  }
  if (DeviceProgress::at_own_work()) {
    return fmt::format(
        "rank {}: a kernel on its GPU has not ended within distributed_config.timeout_s={}, and "
        "the other ranks wait for it; see dmesg and nvidia-smi for errors of the GPU",
        rank_, timeout_s_);
  }
  end_.wait_for(kHeadStart);
  return fmt::format(
      "rank {}: a collective has not ended within distributed_config.timeout_s={}: another rank "
      "has not entered it; see the other ranks' errors",
      rank_, timeout_s_);
}

}  // namespace ddp::train
