#include "trainer/run/strategy/micro_batch_graphs.h"

#include <ATen/record_function.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/config/config.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/parallel/device/device_wait.h"

namespace ddp::train {
namespace {

constexpr int64_t kWarmUpSteps = 3;
constexpr std::size_t kMostKinds = 4;
constexpr int64_t kLeastPartOfMemory = 4;

bool same_kind(const Batch& some, const Batch& other) {
  return some.target_count == other.target_count &&
         std::equal(some.tensors.begin(), some.tensors.end(), other.tensors.begin(),
                    other.tensors.end(), [](const auto& a, const auto& b) {
                      return a.first == b.first && a.second.sizes() == b.second.sizes() &&
                             a.second.scalar_type() == b.second.scalar_type();
                    });
}

/// Where the tensors are that every pass reads and writes.
std::vector<const void*> addresses_of(const std::vector<torch::Tensor>& parameters,
                                      bool with_gradients) {
  std::vector<const void*> addresses;
  for (const auto& parameter : parameters) {
    addresses.push_back(parameter.const_data_ptr());
    if (with_gradients) addresses.push_back(parameter.grad().const_data_ptr());
  }
  return addresses;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::string why_no_cuda_graphs(const Config& config, torch::Device device, int ranks,
                               bool keeps_statistics) {
  if (!device.is_cuda()) return "the device is a CPU";
  if (ranks > 1) return fmt::format("{} ranks train together", ranks);
  if (config.distributed.offload != Offload::kNone)
    return "distributed_config.offload moves weights between steps";
  if (config.distributed.gradient_compression != GradientCompression::kNone)
    return "distributed_config.gradient_compression rounds gradients in a collective";
  if (config.task == TaskKind::kPreference) return "lengths of pairs change from batch to batch";
  if (config.task == TaskKind::kCausalLm &&
      causal_architecture(config).recomputed_share(config) > 0)
    return "activation_checkpointing sets the state of generators within the backward pass";
  if (trains_causal_lm(config.task) && causal_architecture(config).waits_for_device(config))
    return "routers of experts decide the sizes of products on the device";
  if (keeps_statistics) return "batch norm keeps statistics of each batch";
  return "";
}

MicroBatchGraphs::MicroBatchGraphs(AutoSwitch wanted, torch::Device device,
                                   const std::string& why_not, int64_t micro_batches)
    : forced_(wanted == AutoSwitch::kTrue), device_(device), makes_gradients_(micro_batches == 1) {
  if (wanted == AutoSwitch::kFalse || device.is_cpu()) return;
  if (!why_not.empty()) {
    give_up(why_not);
    return;
  }
  generators_.emplace(device);
  side_ = c10::impl::VirtualGuardImpl(device.type())
              .getStreamFromGlobalPool(
                  device, /*isHighPriority=*/true);  // of which copies to the host take none
}

void MicroBatchGraphs::give_up(const std::string& why) {
  note_ = Note{fmt::format("CUDA graphs: not used; {}", why), forced_};
  kinds_.clear();
  generators_.reset();
}

bool MicroBatchGraphs::too_large() const {
  CudaModule& cuda = *loaded_cuda_module();
  return cuda.peak_memory_bytes(device_.index()) >
         cuda.total_memory_bytes(device_.index()) / kLeastPartOfMemory;
}

MicroBatchGraphs::Kind* MicroBatchGraphs::find(const Batch& batch) {
  const auto found = std::find_if(kinds_.begin(), kinds_.end(),
                                  [&](const auto& kind) { return same_kind(kind->inputs, batch); });
  return found == kinds_.end() ? nullptr : found->get();
}

bool MicroBatchGraphs::takes(const Batch& batch) {
  if (!enabled() || steps_ <= kWarmUpSteps) return false;
  if (!std::exchange(measured_, true) && !forced_ && too_large())
    give_up("tensors take more than a quarter of the GPU's memory");
  if (kinds_.size() < kMostKinds || find(batch) != nullptr) return enabled();
  if (!reported_) give_up("shapes or numbers of targets change from batch to batch");
  return false;
}

torch::Tensor MicroBatchGraphs::run(const Batch& batch, uint64_t dropout_seed,
                                    const std::vector<torch::Tensor>& parameters,
                                    const Passes& given) {
  RECORD_USER_SCOPE("forward and backward");
  if (auto addresses = addresses_of(parameters, !makes_gradients_); addresses != addresses_) {
    forget();
    addresses_ = std::move(addresses);
  }
  const Passes passes = [&](const Batch& inputs) {
    for (const auto& parameter : parameters)
      if (makes_gradients_) parameter.mutable_grad().reset();
    return given(inputs);
  };
  Kind* kind = find(batch);
  if (kind == nullptr) {
    kind = kinds_.emplace_back(std::make_unique<Kind>()).get();
    kind->inputs = batch.to(device_);
  } else {
    for (auto& [name, tensor] : kind->inputs.tensors)
      tensor.copy_(batch[name], /*non_blocking=*/true);
  }
  generators_->seed(dropout_seed);
  if (!std::exchange(kind->rehearsed, true)) {
    auto loss = beside(kind->inputs, passes);
    complete(parameters);
    return loss;
  }
  if (!kind->graph) {
    try {
      record(*kind, parameters, passes);
    } catch (const std::exception& error) {  // torch's, or of a kernel of ours
      const Batch inputs = kind->inputs;
      give_up(first_line(error.what()));
      generators_.emplace(device_);  // those of a failed capture may be left in its mode
      generators_->seed(dropout_seed);
      auto loss = beside(inputs, passes);
      complete(parameters);
      generators_.reset();
      return loss;
    }
  }
  kind->graph->replay();
  for (std::size_t i = 0; i < kind->gradients.size(); ++i)
    parameters[i].mutable_grad() = kind->gradients[i];
  return kind->loss.clone();
}

void MicroBatchGraphs::complete(const std::vector<torch::Tensor>& parameters) {
  for (const auto& parameter : parameters) {
    if (parameter.grad().defined()) continue;
    parameter.mutable_grad() = torch::zeros_like(parameter).detach();
    makes_gradients_ = false;
  }
}

void MicroBatchGraphs::record(Kind& kind, const std::vector<torch::Tensor>& parameters,
                              const Passes& passes) {
  const CapturedWork* other = nullptr;
  for (const auto& each : kinds_) {
    if (each->graph) other = each->graph.get();
  }
  // Blocks cached by passes without a graph would add to the graph's memory.
  loaded_cuda_module()->release_unused_memory();
  beside(kind.inputs, [&](const Batch& inputs) {
    kind.graph = loaded_cuda_module()->capture([&] { kind.loss = passes(inputs); },
                                               generators_->all(), other);
    return kind.loss;
  });
  for (const auto& parameter : parameters)
    if (makes_gradients_) kind.gradients.push_back(parameter.grad());
  if (std::exchange(reported_, true)) return;
  note_ = Note{"CUDA graphs: the launches of a micro-batch are replayed as one"};
}

torch::Tensor MicroBatchGraphs::beside(const Batch& inputs, const Passes& passes) {
  const LayerGenerators::Use use(*generators_);
  const ReadyEvent before = record_ready(device_);
  torch::Tensor loss;
  ReadyEvent after;
  {
    const c10::StreamGuard guard(*side_);
    before->make_stream_wait();
    loss = passes(inputs);
    after = record_ready(device_);
  }
  after->make_stream_wait();
  return loss;
}

}  // namespace ddp::train
